// The commands' arguments, as CLI11 reads them. Only for main.cpp.
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
  MigrateCommand migrate;
};

// Adds every command with its options. `args` must outlive `app`.
void add_commands(CLI::App& app, Arguments& args);

// Adds bench, doctor, checkpoint, explain and schema; part of add_commands.
void add_tool_commands(CLI::App& app, Arguments& args);

// Adds data; part of add_commands.
void add_data(CLI::App& app, DataCommand& command);
// Adds data clean and data dedupe; part of add_data.
void add_corpus(CLI::App& group, CorpusCommand& command);
int dispatch_data(const CLI::App& group, const DataCommand& command);

// Adds migrate; part of add_commands.
void add_migrate(CLI::App& app, MigrateCommand& command);

// Runs the command that was parsed and returns the exit code.
int dispatch(const CLI::App& app, const Arguments& args);

}  // namespace sluice
