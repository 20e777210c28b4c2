// The parser of the program's command line, with every command, as main() makes it.
#pragma once

#include "runtime/cli/command_line.hpp"

namespace sluice::testing {

struct ProgramArguments {
  CLI::App app{"trains", "sluice"};
  Arguments args;
  ProgramArguments() {
    app.require_subcommand(1);
    add_commands(app, args);
  }
};

}  // namespace sluice::testing
