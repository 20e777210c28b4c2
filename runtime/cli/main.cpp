#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "configs/suggest.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/cli/arguments.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/launch/error_report.hpp"

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

int dispatch(const CLI::App& app, const Arguments& args) {
  if (app.got_subcommand("train")) return run_train(args.train);
  if (app.got_subcommand("plan")) return run_plan(args.plan);
  if (app.got_subcommand("eval")) return run_eval(args.eval);
  if (app.got_subcommand("generate")) return run_generate(args.generate);
  if (app.got_subcommand("schema")) return run_schema();
  if (app.got_subcommand("explain")) return run_explain(args.explain);
  if (app.got_subcommand("data")) return run_data_inspect(args.data);
  if (app.got_subcommand("bench")) return dispatch_bench(*app.get_subcommand("bench"), args);
  if (app.got_subcommand("checkpoint")) {
    return dispatch_checkpoint(*app.get_subcommand("checkpoint"), args.checkpoint);
  }
  if (app.got_subcommand("doctor")) return run_doctor(args.doctor);
  const CLI::App* tokenizer = app.get_subcommand("tokenizer");
  if (tokenizer->got_subcommand("encode")) return run_tokenizer_encode(args.tokenizer);
  if (tokenizer->got_subcommand("decode")) return run_tokenizer_decode(args.tokenizer);
  return run_tokenizer_train(args.tokenizer_train);
}

// The message for a word that stands where a command of `within` should.
std::string no_such_command(const CLI::App& within, const std::string& called, const char* word) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : within.get_subcommands({})) names.push_back(command->get_name());
  const auto near = nearest(word, names);
  return called + ": there is no command '" + word + "'; " +
         (near ? "did you mean " + std::string(*near) + "? " : "") + called + " --help lists them";
}

// The message where a word that should be a command is none; "" where another thing is wrong.
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

// What was printed has arrived: a result that is cut short is not to look whole.
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
  add_run_commands(app, args);
  add_tool_commands(app, args);
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

}  // namespace

int main(int argc, char** argv) {
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
