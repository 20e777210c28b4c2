// One command of a shell: variables, program and arguments; and words quoted for a shell. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/shell_words.hpp"

namespace sluice::migrate {

struct ShellCommand {
  std::vector<std::string> environment;  // NAME=value before the program
  std::vector<std::string> words;        // the program and its arguments
  std::vector<std::string> errors;       // "line 1, character 17: cause; remedy"
  std::vector<std::string> notes;        // ShellWords::notes
};

[[nodiscard]] ShellCommand split_command(std::string_view line,
                                         Newlines newlines = Newlines::kEndCommand);

// `word` in quotes where a shell would change it.
[[nodiscard]] std::string shell_quote(std::string_view word);

// The words, quoted, with blanks between them.
[[nodiscard]] std::string shell_join(const std::vector<std::string>& words);

}  // namespace sluice::migrate
