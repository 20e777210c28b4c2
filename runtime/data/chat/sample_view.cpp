#include "runtime/data/chat/sample_view.hpp"

#include <algorithm>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::string_view kGrey = "\033[90m", kGreen = "\033[32m", kPlain = "\033[0m";

// Text that a terminal shows as it is.
std::string visible(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte == '\n' || (byte >= 0x20 && byte != 0x7F)) {
        out += text[i];
      } else {
        append_utf8(byte == 0x7F ? 0x2421 : 0x2400U + byte, out);
      }
      ++i;
      continue;
    }
    const std::size_t valid = valid_utf8_prefix(text.substr(i, 4));
    std::size_t length = 1;
    const char32_t code = valid > 0 ? first_code_point(text.substr(i), length) : 0;
    const bool control = code >= 0x80 && code < 0xA0;
    out += valid == 0 || control ? std::string_view("\uFFFD") : text.substr(i, length);
    i += length;
  }
  return out;
}

struct Run {
  std::string text;
  bool learned = false;
};

// Neighbouring tokens of one kind. A character that begins in one run is moved there whole.
std::vector<Run> runs_of(const Tokenizer& tokenizer, const LearnedTokens& sample,
                         std::size_t tokens) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::span<const std::int32_t> token(&sample.ids[i], 1);
    std::string bytes = i == 0 ? tokenizer.decode(token) : tokenizer.decode_continued(token);
    const bool learned = sample.learned[i] != 0;
    if (runs.empty() || runs.back().learned != learned) {
      if (!runs.empty()) {
        std::string& before = runs.back().text;
        while (!bytes.empty() && (bytes[0] & 0xC0) == 0x80 &&
               valid_utf8_prefix(before) < before.size()) {
          before += bytes[0];
          bytes.erase(0, 1);
        }
      }
      runs.push_back({"", learned});
    }
    runs.back().text += bytes;
  }
  return runs;
}

}  // namespace

std::string show_sample(const Tokenizer& tokenizer, const LearnedTokens& sample,
                        std::int64_t number, const SampleView& view) {
  const std::size_t all = sample.ids.size();
  const std::size_t shown = std::min(all, view.most_tokens);
  const auto learned = std::count_if(sample.learned.begin(), sample.learned.end(),
                                     [](std::uint8_t value) { return value != 0; });
  std::string out = "sample " + std::to_string(number) + ": " + std::to_string(all) +
                    (all == 1 ? " token, " : " tokens, ") + std::to_string(learned) + " learned\n";
  for (const Run& run : runs_of(tokenizer, sample, shown)) {
    if (view.color) {
      out += run.learned ? kGreen : kGrey;
      out += visible(run.text);
      out += kPlain;
    } else {
      out += run.learned ? "[[" + visible(run.text) + "]]" : visible(run.text);
    }
  }
  if (!out.ends_with('\n')) out += '\n';
  if (shown < all) out += "... " + std::to_string(all - shown) + " more tokens\n";
  return out;
}

}  // namespace sluice
