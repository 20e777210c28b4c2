#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/cli/command_line.hpp"
#include "runtime/cli/help/argument_values.hpp"

namespace sluice {
namespace {

// These print one result and log nothing.
constexpr std::array<std::string_view, 5> kSilent = {"schema", "explain", "completion",
                                                     "tokenizer encode", "tokenizer decode"};

}  // namespace

void add_verbosity(CLI::App& app, Arguments& args) {
  for (CLI::App* command : app.get_subcommands({})) add_verbosity(*command, args);
  if (!app.get_subcommands({}).empty()) return;
  if (std::find(kSilent.begin(), kSilent.end(), path_of(app)) != kSilent.end()) return;
  CLI::Option* quiet = app.add_flag("--quiet", args.quiet, "results, warnings and errors alone");
  app.add_flag("--verbose", args.verbose, "details as well")->excludes(quiet);
}

}  // namespace sluice
