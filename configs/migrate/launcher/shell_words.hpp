// One command line, split as a POSIX shell splits it. Nothing is expanded or run. Pure functions;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::migrate {

struct ShellCommand {
  std::vector<std::string> environment;  // NAME=value before the program
  std::vector<std::string> words;        // the program and its arguments
  std::string error;                     // "character 17: cause; remedy", or ""
};

// Reads quotes, backslashes, comments, and lines joined by a backslash at their end. Refuses
// everything that makes more than one command, or that only a shell can evaluate: pipes,
// redirections, ; & && ||, subshells, $NAME, $(...), `...`, brackets of a shell.
[[nodiscard]] ShellCommand split_shell(std::string_view line);

// `word` in quotes where a shell would change it.
[[nodiscard]] std::string shell_quote(std::string_view word);

// The words, quoted, with blanks between them.
[[nodiscard]] std::string shell_join(const std::vector<std::string>& words);

}  // namespace sluice::migrate
