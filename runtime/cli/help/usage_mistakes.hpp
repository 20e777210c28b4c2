// Messages for words of a command line that no command takes. Pure functions; thread-safe.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

// The message for a command line that did not parse: an unknown command, else the options and
// arguments that no command takes, one a line, each with the nearest known name. Empty for other
// mistakes.
[[nodiscard]] std::string usage_mistakes(const CLI::App& app, int argc, const char* const* argv);

}  // namespace sluice
