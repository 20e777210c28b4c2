#include "runtime/generate/text_stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the character that begins with this byte; 0 if none does.
std::size_t length_of(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

// True if more bytes can complete `start` to a valid character. Tests the lowest and the highest
// possible remaining bytes.
bool may_become_valid(std::string_view start) {
  const std::size_t length = length_of(static_cast<std::uint8_t>(start[0]));
  if (length <= start.size()) return false;
  for (const char rest : {'\x80', '\xBF'}) {
    std::string whole(start);
    whole.resize(length, rest);
    if (valid_utf8_prefix(whole) == length) return true;
  }
  return false;
}

}  // namespace

std::string TextStream::add(std::string_view bytes) {
  held_ += bytes;
  std::string shown;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const std::size_t valid = valid_utf8_prefix(rest);
    shown += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty() || may_become_valid(rest)) break;
    // The longest run of bytes that could begin a character becomes one U+FFFD.
    std::size_t wrong = 1;
    while (wrong < rest.size() && may_become_valid(rest.substr(0, wrong + 1))) ++wrong;
    if (!may_become_valid(rest.substr(0, 1))) wrong = 1;
    shown += kReplacement;
    rest.remove_prefix(wrong);
  }
  held_ = std::string(rest);
  return shown;
}

std::string TextStream::finish() {
  const bool cut = !held_.empty();
  held_.clear();
  return cut ? std::string(kReplacement) : std::string();
}

}  // namespace sluice
