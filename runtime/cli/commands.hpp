// The program's commands. Each returns the process's exit code and throws what main reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct TrainCommand {
  std::string config;
  std::vector<std::string> overrides;  // "section.key=value"
  int nproc = 0;                       // 0: launch.nproc
  bool dry_run = false;
  std::string resume = "never";
  std::vector<std::string> argv;  // as this process got it: the ranks get the same
};
int run_train(const TrainCommand& command);

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  int world = 0;        // ranks of the whole job; 0: launch.nproc
  std::string profile;  // of configs/machines; empty: this machine
  bool json = false;
  bool suggest = false;
  bool compare = false;
  std::int64_t endurance_bytes = 600'000'000'000'000;  // that a drive may be written in its life
};
// 3 where the plan does not fit, after it has been printed.
int run_plan(const PlanCommand& command);

int run_schema();

struct TokenizerCommand {
  std::string tokenizer = "bytes";
  std::string input;  // a file, or empty: standard input
};
int run_tokenizer_encode(const TokenizerCommand& command);
int run_tokenizer_decode(const TokenizerCommand& command);

struct TokenizerTrainCommand {
  std::vector<std::string> text;
  std::int64_t vocab_size = 0;
  std::string out_dir;
};
int run_tokenizer_train(const TokenizerTrainCommand& command);

struct DataCommand {
  std::string config;
  std::vector<std::string> overrides;
};
// Builds the token caches of a configuration and says what is in them.
int run_data_inspect(const DataCommand& command);

struct BenchCommand {
  bool json = false;
  int rounds = 0;                 // comm, adam; 0: the benchmark's own
  std::vector<std::string> argv;  // as this process got it
};

struct BenchStepCommand {
  std::string config;
  std::vector<std::string> overrides;
  int nproc = 0;  // 0: launch.nproc
  std::int64_t steps = 10;
  std::int64_t warmup = 3;
};
int run_bench_step(const BenchCommand& common, const BenchStepCommand& command);

struct BenchCommCommand {
  int ranks = 2;
  std::vector<std::string> bytes;       // "1MiB"; none: the benchmark's own
  std::vector<std::string> transports;  // none: all
};
int run_bench_comm(const BenchCommand& common, const BenchCommCommand& command);

struct BenchAdamCommand {
  std::string elems;  // "32M"; none: the benchmark's own
  int threads = 0;    // 0: the cores this process may use
  std::string dtype = "fp32";
};
int run_bench_adam(const BenchCommand& common, const BenchAdamCommand& command);

struct BenchNvmeCommand {
  std::vector<std::string> paths;
  std::string bytes;                // "1GiB"; none: the benchmark's own
  std::vector<std::string> blocks;  // "1MiB"; none: the benchmark's own
  std::vector<int> depths;          // none: the benchmark's own
  bool no_checksums = false;
};
int run_bench_nvme(const BenchCommand& common, const BenchNvmeCommand& command);

struct DoctorCommand {
  bool json = false;
  bool quick = false;
  std::string nvme_path;          // a folder; none: the folder for temporary files
  std::string out;                // the rates file; none: machine_rates_path()
  std::vector<std::string> argv;  // as this process got it
};
int run_doctor(const DoctorCommand& command);

}  // namespace sluice
