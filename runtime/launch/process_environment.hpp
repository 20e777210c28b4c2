// The environment of a process as a table. Pure, but for reading this process's own.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sluice {

using Environment = std::map<std::string, std::string>;

[[nodiscard]] Environment own_environment();

// SLUICE_TTY and COLUMNS if standard output is a terminal, SLUICE_STDERR_TTY if standard error is;
// with either, the variables that say what this process's terminal can show (terminal.hpp). Ranks
// write to pipes and cannot ask.
void describe_terminal(Environment& environment);

// NAME=value, as execve takes it.
[[nodiscard]] std::vector<std::string> entries_of(const Environment& environment);

}  // namespace sluice
