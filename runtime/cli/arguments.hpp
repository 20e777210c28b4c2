// The program's commands as the command line gives them.
#pragma once

#include "runtime/cli/commands.hpp"

namespace CLI {
class App;
}

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
};

// Adds train, plan, eval, generate, data and tokenizer with their options. `app` writes what it
// parses to `args`.
void add_run_commands(CLI::App& app, Arguments& args);

// Adds bench, doctor, checkpoint, explain and schema.
void add_tool_commands(CLI::App& app, Arguments& args);

}  // namespace sluice
