// The environment of a process as a table. Pure, but for reading this process's own.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sluice {

using Environment = std::map<std::string, std::string>;

[[nodiscard]] Environment own_environment();

// SLUICE_TTY and COLUMNS, as standard output is one or none: ranks write to a pipe and cannot see.
void describe_terminal(Environment& environment);

// NAME=value, as execve takes it.
[[nodiscard]] std::vector<std::string> entries_of(const Environment& environment);

}  // namespace sluice
