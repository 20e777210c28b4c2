#include "runtime/data/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <limits>

#include "kernels/base/error.hpp"

namespace sluice {

const char* const kGpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
const char* const kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// Unicode's White_Space as the inside of a class. PCRE2's own \s has U+180E besides.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \s and \S spelt out by kWhiteSpace (a \S inside a class stays PCRE2's).
std::string with_exact_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        out += in_class ? std::string(kWhiteSpace) : "[" + std::string(kWhiteSpace) + "]";
      } else if (next == 'S' && !in_class) {
        out += "[^" + std::string(kWhiteSpace) + "]";
      } else {
        out += {c, next};
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    }
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct MatchState {
  // One pair is enough: only the whole match is read.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr);
  MatchState() {
    pcre2_set_match_limit(context, std::numeric_limits<std::uint32_t>::max());
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
};

}  // namespace

struct SplitPattern::Impl {
  pcre2_code* code = nullptr;
  Impl() = default;
  ~Impl() { pcre2_code_free(code); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

SplitPattern::SplitPattern(const std::string& pattern) : impl_(std::make_unique<Impl>()) {
  const std::string exact = with_exact_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(exact.data()), exact.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (impl_->code == nullptr) {
    throw ConfigError("the tokenizer's split pattern '" + pattern +
                      "' does not compile: " + message_of(error));
  }
  pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE);  // without JIT pcre2_match interprets
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

void SplitPattern::split(std::string_view text, std::vector<std::string_view>& out) const {
  thread_local const MatchState state;
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const int found =
        pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, state.data, state.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) throw Error("splitting text into words failed: " + message_of(found));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state.data);
    if (ends[0] > done) out.push_back(text.substr(done, ends[0] - done));
    out.push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = from = ends[1];
  }
  if (done < text.size()) out.push_back(text.substr(done));
}

}  // namespace sluice
