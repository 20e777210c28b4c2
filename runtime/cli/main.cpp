#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/launch/error_report.hpp"

namespace {

using namespace sluice;

constexpr int kUsageError = 2;

struct Arguments {
  TrainCommand train;
  TokenizerCommand tokenizer;
  TokenizerTrainCommand tokenizer_train;
  DataCommand data;
};

void add_train(CLI::App& app, Arguments& args) {
  CLI::App* train = app.add_subcommand("train", "train a model as a YAML file says");
  train->add_option("config", args.train.config, "the YAML file")->required();
  train->add_option("--set", args.train.overrides, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  train->add_option("--nproc", args.train.nproc, "ranks on this host, over launch.nproc")
      ->check(CLI::PositiveNumber);
  train->add_flag("--dry-run", args.train.dry_run, "print the plan, start nothing");
  train->add_option("--resume", args.train.resume, "auto, never, or a checkpoint's folder");
}

void add_tokenizer(CLI::App& app, Arguments& args) {
  CLI::App* group = app.add_subcommand("tokenizer", "train a tokenizer, encode, decode");
  group->require_subcommand(1);
  for (const char* name : {"encode", "decode"}) {
    CLI::App* sub = group->add_subcommand(name, std::string(name) + " a file or standard input");
    sub->add_option("--tokenizer", args.tokenizer.tokenizer, "bytes, a folder or a file");
    sub->add_option("input", args.tokenizer.input, "a file; none: standard input");
  }
  CLI::App* train = group->add_subcommand("train", "learn a byte-level BPE vocabulary");
  train->add_option("text", args.tokenizer_train.text, "files, folders, globs")->required();
  train->add_option("--vocab-size", args.tokenizer_train.vocab_size, "ids, 257 or more")
      ->required();
  train
      ->add_option("-o,--output", args.tokenizer_train.out_dir, "folder for vocab.json, merges.txt")
      ->required();
}

void add_data(CLI::App& app, Arguments& args) {
  CLI::App* group = app.add_subcommand("data", "prepare and look at training data");
  group->require_subcommand(1);
  for (const char* name : {"prepare", "inspect"}) {
    CLI::App* sub = group->add_subcommand(name, "build the token caches; say what is in them");
    sub->add_option("config", args.data.config, "the YAML file")->required();
    sub->add_option("--set", args.data.overrides, "section.key=value")->allow_extra_args(false);
  }
}

int dispatch(const CLI::App& app, const Arguments& args) {
  if (app.got_subcommand("train")) return run_train(args.train);
  if (app.got_subcommand("schema")) return run_schema();
  if (app.got_subcommand("data")) return run_data_inspect(args.data);
  const CLI::App* tokenizer = app.get_subcommand("tokenizer");
  if (tokenizer->got_subcommand("encode")) return run_tokenizer_encode(args.tokenizer);
  if (tokenizer->got_subcommand("decode")) return run_tokenizer_decode(args.tokenizer);
  return run_tokenizer_train(args.tokenizer_train);
}

int run_main(int argc, char** argv) {
  CLI::App app("Sluice trains transformer models that do not fit", "sluice");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  Arguments args;
  args.train.argv.assign(argv, argv + argc);
  add_train(app, args);
  add_tokenizer(app, args);
  add_data(app, args);
  app.add_subcommand("schema", "print the configuration's JSON Schema, for editors");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  arm_failpoints_from_environment();
  return dispatch(app, args);
}

}  // namespace

int main(int argc, char** argv) {
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
