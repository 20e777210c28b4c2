#include "runtime/data/corpus/repair/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.hpp"

namespace sluice {
namespace {

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct Pattern::Code {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> compiled;
};

Pattern::Pattern(const std::string& pattern, Over over) : code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE place = 0;
  code_->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                      over == Over::kUtf8 ? PCRE2_UTF : 0, &error, &place,
                                      nullptr));
  check(code_->compiled != nullptr,
        "a built-in pattern does not compile, at " + std::to_string(place) + " of " + pattern);
  (void)pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from) const {
  thread_local const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create(8, nullptr));
  const int result = pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  check(result >= 0, "PCRE2 fails with " + std::to_string(result));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
  return Match{ends[0], ends[1]};
}

std::string Pattern::replace(std::string_view text,
                             const std::function<std::string(std::string_view match)>& by) const {
  std::string out;
  std::size_t at = 0;
  while (const auto match = find(text, at)) {
    out += text.substr(at, match->begin - at);
    out += by(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  out += text.substr(at);
  return out;
}

}  // namespace sluice
