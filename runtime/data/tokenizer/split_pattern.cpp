#include "runtime/data/tokenizer/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <utility>

#include "runtime/data/tokenizer/utf8.hpp"

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

// Steps of one match. The usual patterns take up to four for each byte of a long word; a tenth of a
// second passes over 50 million (JIT) or 5 million (interpreted).
constexpr std::uint64_t kStepsOfAnyMatch = 10'000'000;
constexpr std::uint64_t kStepsOfAByte = 16;
constexpr std::uint32_t kStepsOfAProbe = 1'000'000;  // of 65 bytes: cubic time is 274 625
constexpr std::uint32_t kHeapKiB = 256 * 1024;       // of the interpreter

std::uint32_t steps_for(std::size_t text_bytes) {
  const std::uint64_t steps = kStepsOfAnyMatch + kStepsOfAByte * text_bytes;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(steps, std::numeric_limits<std::uint32_t>::max()));
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct MatchState {
  // One pair is enough: only the whole match is read.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr);
  MatchState() {
    pcre2_set_heap_limit(context, kHeapKiB);
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

const MatchState& state_of_thread() {
  thread_local const MatchState state;
  return state;
}

}  // namespace

struct SplitPattern::Impl {
  std::string pattern;  // as it was given
  pcre2_code* code = nullptr;
  Impl() = default;
  ~Impl() { pcre2_code_free(code); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // pcre2_match's result, whose ends are in state_of_thread().
  [[nodiscard]] int match(std::string_view text, std::size_t from, std::uint32_t steps) const {
    const MatchState& state = state_of_thread();
    pcre2_set_match_limit(state.context, steps);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, state.data, state.context);
  }
};

SplitPattern::SplitPattern(const std::string& pattern)
    : rule_(word_rule_of(pattern)), impl_(std::make_unique<Impl>()) {
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
  impl_->pattern = pattern;
  check_speed();
}

// Runs of one character, on which a repetition within a repetition goes through every partition.
void SplitPattern::check_speed() const {
  constexpr std::pair<const char*, const char*> kRuns[] = {
      {"a", "letters"},        {"A", "capitals"},
      {"1", "digits"},         {" ", "spaces"},
      {"\n", "newlines"},      {".", "dots"},
      {"a ", "short words"},   {"\u00e9", "accented letters"},
      {"\u65e5", "ideographs"}};
  for (const auto& [part, name] : kRuns) {
    std::string run;
    while (run.size() < 64) run += part;
    for (const char* end : {"", "!", "a", "\n"}) {
      if (impl_->match(run + end, 0, kStepsOfAProbe) != PCRE2_ERROR_MATCHLIMIT) continue;
      fail(std::string("needs exponential time on a short run of ") + name, nullptr);
    }
  }
}

void SplitPattern::fail(const std::string& why, const char* at) const {
  constexpr std::size_t kMostOfPattern = 100;
  const std::string& all = impl_->pattern;
  const std::size_t shown = valid_utf8_prefix(std::string_view(all).substr(0, kMostOfPattern));
  throw SplitError(
      "the split pattern '" + all.substr(0, shown) + (shown < all.size() ? "..." : "") + "' " + why,
      at);
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

SplitBudget::SplitBudget(std::size_t text_bytes)
    : most_seconds_(1.0 + 2e-6 * static_cast<double>(text_bytes)) {}

// Reads the clock after every match while matches are slow, else after every 64th.
bool SplitBudget::match() {
  constexpr double kSlowSeconds = 1e-3;
  constexpr int kLongestInterval = 64;
  if (--left_ > 0) return true;
  const double now = thread_cpu_seconds();
  if (started_ < 0) started_ = checked_ = now;
  interval_ = now - checked_ > kSlowSeconds ? 1 : std::min(2 * interval_, kLongestInterval);
  checked_ = now;
  left_ = interval_;
  return now - started_ <= most_seconds_;
}

void SplitPattern::split(std::string_view text, std::vector<std::string_view>& out,
                         SplitBudget& budget) const {
  if (rule_ != WordRule::kNone) {
    for_each_word(rule_, text, [&](std::string_view word) { out.push_back(word); });
    return;
  }
  std::vector<SplitPart> all;
  parts(text, all, budget);
  for (const SplitPart& part : all) out.push_back(part.text);
}

void SplitPattern::parts(std::string_view text, std::vector<SplitPart>& out,
                         SplitBudget& budget) const {
  const std::uint32_t steps = steps_for(text.size());
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const int found = impl_->match(text, from, steps);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) fail("ends with: " + message_of(found), text.data() + from);
    if (!budget.match()) fail("takes too much time", text.data() + from);
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_of_thread().data);
    if (ends[0] > done) out.push_back({text.substr(done, ends[0] - done), false});
    out.push_back({text.substr(ends[0], ends[1] - ends[0]), true});
    done = from = ends[1];
  }
  if (done < text.size()) out.push_back({text.substr(done), false});
}

}  // namespace sluice
