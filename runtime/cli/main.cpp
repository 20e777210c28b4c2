#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log_level.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/cli/command_line.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/help/completion.hpp"
#include "runtime/cli/help/usage_mistakes.hpp"
#include "runtime/launch/error_report.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/observe/terminal.hpp"

namespace {

using namespace sluice;

constexpr int kUsageError = 2;

int dispatch_checkpoint(const CLI::App& group, const CheckpointCommand& command) {
  if (group.got_subcommand("ls")) return run_checkpoint_ls(command);
  if (group.got_subcommand("verify")) return run_checkpoint_verify(command);
  if (group.got_subcommand("convert")) return run_checkpoint_convert(command);
  if (group.got_subcommand("export")) return run_checkpoint_export(command);
  return run_checkpoint_import(command);
}

int dispatch_bench(const CLI::App& group, const Arguments& args) {
  if (group.got_subcommand("step")) return run_bench_step(args.bench, args.bench_step);
  if (group.got_subcommand("comm")) return run_bench_comm(args.bench, args.bench_comm);
  if (group.got_subcommand("nvme")) return run_bench_nvme(args.bench, args.bench_nvme);
  return run_bench_adam(args.bench, args.bench_adam);
}

int dispatch_data(const CLI::App& group, const DataCommand& command) {
  if (group.got_subcommand("clean")) return run_data_clean(command.corpus);
  if (group.got_subcommand("dedupe")) return run_data_dedupe(command.corpus);
  if (group.got_subcommand("merge")) return run_data_merge(command);
  if (group.got_subcommand("split")) return run_data_split(command);
  if (group.got_subcommand("shuffle")) return run_data_shuffle(command);
  if (group.got_subcommand("cat")) return run_data_cat(command);
  if (group.got_subcommand("stats")) return run_data_stats(command);
  if (group.got_subcommand("prepare")) return run_data_prepare(command);
  return run_data_inspect(command);
}

// Runs the command that was parsed and returns the exit code.
int dispatch(const CLI::App& app, const Arguments& args) {
  if (app.got_subcommand("train")) return run_train(args.train);
  if (app.got_subcommand("plan")) return run_plan(args.plan);
  if (app.got_subcommand("eval")) return run_eval(args.eval);
  if (app.got_subcommand("generate")) return run_generate(args.generate);
  if (app.got_subcommand("migrate")) return run_migrate(args.migrate);
  if (app.got_subcommand("schema")) return run_schema();
  if (app.got_subcommand("explain")) return run_explain(args.explain);
  if (app.got_subcommand("data")) return dispatch_data(*app.get_subcommand("data"), args.data);
  if (app.got_subcommand("bench")) return dispatch_bench(*app.get_subcommand("bench"), args);
  if (app.got_subcommand("checkpoint")) {
    return dispatch_checkpoint(*app.get_subcommand("checkpoint"), args.checkpoint);
  }
  if (app.got_subcommand("doctor")) return run_doctor(args.doctor);
  if (app.got_subcommand("report")) return run_report(args.report);
  if (app.got_subcommand("completion")) return run_completion(args.shell, app);
  const CLI::App* tokenizer = app.get_subcommand("tokenizer");
  if (tokenizer->got_subcommand("encode")) return run_tokenizer_encode(args.tokenizer);
  if (tokenizer->got_subcommand("decode")) return run_tokenizer_decode(args.tokenizer);
  return run_tokenizer_train(args.tokenizer_train);
}

LogLevel log_level_of(const Arguments& args) {
  if (args.quiet) return LogLevel::kWarning;
  return args.verbose ? LogLevel::kDebug : LogLevel::kInfo;
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
    const bool failed = error.get_exit_code() != 0;  // else: a call for help or the version
    const std::string mistakes = failed ? usage_mistakes(app, argc, argv) : "";
    if (!mistakes.empty()) {
      std::fprintf(stderr, "%s\n", mistakes.c_str());
      return kUsageError;
    }
    if (app.exit(error) != 0) return kUsageError;
    check_output();  // the help that was asked for
    return 0;
  }
  arm_failpoints_from_environment();
  set_log_level(log_level_of(args));
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
    if (has_launcher()) return report_failure(error);
    const std::string name = colored(Color::kError, "sluice:", terminal_info(STDERR_FILENO));
    std::fprintf(stderr, "%s %s\n", name.c_str(), error_chain(error).c_str());
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
