// The commands' arguments, as CLI11 reads them. Only for main.cpp and tests of the arguments.
#pragma once

#include <CLI/CLI.hpp>

#include "runtime/cli/commands.hpp"

namespace sluice {

struct Arguments {
  TrainCommand train;
  PlanCommand plan;
  TokenizerCommand tokenizer;
  TokenizerTrainCommand tokenizer_train;
  DataCommand data;
  BenchCommand bench;
  BenchStepCommand bench_step;
  BenchCommCommand bench_comm;
  BenchAdamCommand bench_adam;
  BenchNvmeCommand bench_nvme;
  DoctorCommand doctor;
  CheckpointCommand checkpoint;
  EvalCommand eval;
  GenerateCommand generate;
  ExplainCommand explain;
  ReportCommand report;
  MigrateCommand migrate;
  std::string shell;     // completion
  bool quiet = false;    // results, warnings and errors alone
  bool verbose = false;  // details as well
};

// Adds every command with its options, and the form of --help. `args` must outlive `app`.
void add_commands(CLI::App& app, Arguments& args);

// Adds bench, doctor, report, checkpoint, explain and schema; part of add_commands.
void add_tool_commands(CLI::App& app, Arguments& args);

// Adds data; part of add_commands.
void add_data(CLI::App& app, DataCommand& command);
// Adds data clean and data dedupe; part of add_data.
void add_corpus(CLI::App& group, CorpusCommand& command);

// Adds migrate; part of add_commands.
void add_migrate(CLI::App& app, MigrateCommand& command);

// Adds --quiet and --verbose to the commands that log; part of add_commands, after all commands.
void add_verbosity(CLI::App& app, Arguments& args);

}  // namespace sluice
