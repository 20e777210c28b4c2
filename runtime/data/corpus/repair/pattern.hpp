// A regular expression of PCRE2 over valid UTF-8, or over bytes. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

class Pattern {
 public:
  enum class Over { kUtf8, kBytes };
  // REQUIRES: `pattern` is an expression of PCRE2.
  Pattern(const std::string& pattern, Over over);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  struct Match {
    std::size_t begin = 0, end = 0;
  };
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from = 0) const;
  // `text` with each match replaced. REQUIRES: no match is empty.
  [[nodiscard]] std::string replace(
      std::string_view text, const std::function<std::string(std::string_view match)>& by) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace sluice
