// A command line as the words that a POSIX shell would pass to a program: quotes, backslashes,
// backslash-newline and comments are resolved. Words keep *, ?, ~ and {} as written: nothing is
// expanded, but ${NAME:-default} becomes its default. A text that only a shell could complete is
// refused: $NAME, $(command), pipes, redirections, several commands. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

struct ShellWord {
  std::string text;
  Place place;  // of the first byte
};

struct ShellProblem {
  Place place;
  std::string what;  // "cause; remedy"
};

struct ShellWords {
  std::vector<ShellWord> words;  // meaningless when there are problems
  std::vector<ShellProblem> problems;
  std::vector<std::string> notes;  // a sentence for each ${NAME:-default}
};

inline constexpr std::size_t kMaxShellBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxShellWords = 20'000;

enum class Newlines {
  kEndCommand,     // words on a later line are a second command, which is refused
  kSeparateWords,  // a file of arguments
};

// Reports every variable and every arithmetic, and the first of all other problems.
[[nodiscard]] ShellWords split_shell_words(std::string_view text,
                                           Newlines newlines = Newlines::kEndCommand);

}  // namespace sluice::migrate
