#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "configs/suggest.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/cli/command_line.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/launch/error_report.hpp"

namespace {

using namespace sluice;

constexpr int kUsageError = 2;

// The message for a word in the place of a command of `within`.
std::string no_such_command(const CLI::App& within, const std::string& called, const char* word) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : within.get_subcommands({})) names.push_back(command->get_name());
  const auto near = nearest(word, names);
  return called + ": there is no command '" + word + "'; " +
         (near ? "did you mean " + std::string(*near) + "? " : "") + called + " --help lists them";
}

// The message if a word in the place of a command is unknown; "" for other mistakes.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* within = &app;
  std::string called = "sluice";
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    if (within->get_subcommands({}).empty()) return "";  // takes none
    const auto chosen = within->get_subcommands();
    if (chosen.empty()) return no_such_command(*within, called, argv[i]);
    within = chosen.front();
    called += " " + within->get_name();
  }
  return "";
}

// Checks that all output was written: a truncated result must not look complete.
void check_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) refuse_lost_output();
}

int run_main(int argc, char** argv) {
  CLI::App app("Sluice trains transformer models that do not fit", "sluice");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  Arguments args;
  args.train.argv.assign(argv, argv + argc);
  args.bench.argv = args.train.argv;
  args.doctor.argv = args.train.argv;
  args.eval.argv = args.train.argv;
  args.generate.argv = args.train.argv;
  add_commands(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_command(app, argc, argv);
    if (!unknown.empty()) {
      std::fprintf(stderr, "%s\n", unknown.c_str());
      return kUsageError;
    }
    if (app.exit(error) != 0) return kUsageError;
    check_output();  // the help that was asked for
    return 0;
  }
  arm_failpoints_from_environment();
  const int exit_code = dispatch(app, args);
  // A run's lines are in its log as well, and a checkpoint counts for more than the last of them.
  const bool is_run = app.got_subcommand("train") && !args.train.dry_run;
  if (exit_code == 0 && !is_run) check_output();
  return exit_code;
}

int run_and_report(int argc, char** argv) {
  // A file beyond the limit on sizes (ulimit -f) is an error of its write, with the file's name.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    prepare_process();
    enable_flush_to_zero();
    return run_main(argc, argv);
  } catch (const std::exception& error) {
    if (std::getenv("SLUICE_ERROR_FILE") != nullptr) return report_failure(error);
    std::fprintf(stderr, "sluice: %s\n", error_chain(error).c_str());
    return exit_code_of(error);
  }
}

}  // namespace

// Ends without the destructors of static objects: libtorch's take a fifth of a second to forget the
// operators. Nothing of the program is left to destroy here. A sanitizer looks for leaks in exit().
int main(int argc, char** argv) {
  const int exit_code = run_and_report(argc, argv);
#ifndef __SANITIZE_ADDRESS__
  std::fflush(nullptr);
  _exit(exit_code);
#endif
  return exit_code;
}
