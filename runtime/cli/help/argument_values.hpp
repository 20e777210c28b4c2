// The value that each argument takes, as help and completion show it: alternatives, separated by
// '|'. An alternative in lower case is a word to type ("auto"); one in capitals is a kind (FILE).
//
//   --resume auto|never|DIR
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sluice {

// The value of an option or argument of the command with this path ("data prepare"). Empty: a flag.
[[nodiscard]] std::string value_of(const std::string& command, const CLI::Option& option);

[[nodiscard]] bool is_flag(const CLI::Option& option);

// The name that the user types or reads: "--resume", "config".
[[nodiscard]] std::string shown_name(const CLI::Option& option);

// The path of a command below the program: "data prepare"; "" for the program itself.
[[nodiscard]] std::string path_of(const CLI::App& command);

// Rows of the table that no argument of the tree uses, and arguments without a row: a line each.
[[nodiscard]] std::vector<std::string> value_table_faults(const CLI::App& program);

}  // namespace sluice
