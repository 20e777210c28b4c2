// `sluice bench`: measurements of this machine. step runs a training in a folder of its own and
// reads its files; comm starts ranks of this program, and rank 0 writes the result to a file; adam
// and nvme run in this process.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "configs/derived.hpp"
#include "configs/reader.hpp"
#include "offload/nvme_bench.hpp"
#include "runtime/bench/adam_bench.hpp"
#include "runtime/bench/comm_bench.hpp"
#include "runtime/bench/step_bench.hpp"
#include "runtime/cli/bench_support.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/doctor/nvme_bench_json.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/model/model_spec.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {

template <class Result>
std::string text_of(const BenchCommand& common, const Result& result) {
  return common.json ? to_json(result) : describe(result);
}

// Overrides that turn a training run into a measurement, after the user's own.
std::vector<std::string> measuring_overrides(const BenchStepCommand& command,
                                             const std::string& run_dir) {
  std::vector<std::string> overrides = command.overrides;
  for (const std::string& setting :
       {"train.steps=" + std::to_string(command.warmup + command.steps),
        std::string("train.eval_steps=0"), std::string("train.eval_every=0"),
        std::string("train.sample_tokens=0"), std::string("schedule.warmup_steps=0"),
        std::string("schedule.wsd_decay=0"), std::string("checkpoint.every=0"),
        std::string("checkpoint.at_end=false"), std::string("checkpoint.dir=''"),
        std::string("checkpoint.time_limit=0"), std::string("output.trace=true"),
        "output.dir=" + run_dir}) {
    overrides.push_back(setting);
  }
  return overrides;
}

double loss_head_share(const LoadedConfig& config, int world) {
  ModelOptions options = config.run.model;
  const Derived derived = derive(config.run, world);
  options.kv_heads = derived.kv_heads;
  options.ffn = derived.ffn;
  const ModelSpec spec = make_model_spec(options);
  double all = 0;
  double head = 0;
  for (const UnitSpec& unit : spec.units) {
    const double flops = spec.forward_flops_per_sample(unit);
    all += flops;
    if (unit.kind == UnitKind::kLossHead) head += flops;
  }
  return all > 0 ? head / all : 0;
}

int count_ranks(const std::string& run_dir) {
  int ranks = 0;
  while (std::filesystem::exists(run_dir + "/rank-" + std::to_string(ranks) + ".log")) ++ranks;
  return ranks;
}

// "1MiB"; above 0.
std::int64_t size_option(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) {
    throw ConfigError(std::string(option) + ": '" + text + "' is not a size; write 1MiB");
  }
  return *bytes;
}

NvmeBenchOptions nvme_options(const BenchNvmeCommand& command) {
  NvmeBenchOptions options;
  options.paths = command.paths;
  for (const std::string& path : options.paths) {
    if (!std::filesystem::is_directory(path)) {
      throw ConfigError("bench nvme: " + path +
                        " is not a folder; name one on the disk to measure");
    }
  }
  if (!command.bytes.empty()) options.bytes = size_option("--bytes", command.bytes);
  if (!command.blocks.empty()) options.block_bytes.clear();
  for (const std::string& text : command.blocks) {
    options.block_bytes.push_back(size_option("--blocks", text));
    if (options.block_bytes.back() % kIoAlignment != 0) {
      throw ConfigError("--blocks: '" + text + "' is not a multiple of 4 KiB");
    }
  }
  if (!command.depths.empty()) options.depths = command.depths;
  options.checksums = !command.no_checksums;
  return options;
}

CommBenchOptions comm_options(const BenchCommand& common, const BenchCommCommand& command) {
  CommBenchOptions options;
  options.ranks = command.ranks;
  if (common.rounds > 0) options.rounds = common.rounds;
  if (!command.bytes.empty()) options.bytes.clear();
  for (const std::string& text : command.bytes) {
    options.bytes.push_back(size_option("--bytes", text));
  }
  if (!command.transports.empty()) options.transports.clear();
  for (const std::string& name : command.transports) {
    options.transports.push_back(transport_of(name));
  }
  return checked(std::move(options));
}

int run_comm_rank(const BenchCommand& common, const CommBenchOptions& options,
                  const RankEnvironment& rank, const char* result_path) {
  CommOptions rendezvous;
  rendezvous.rank = rank.rank;
  rendezvous.size = rank.world_size;
  rendezvous.master_addr = rank.master_addr;
  rendezvous.master_port = rank.master_port;
  const CommBenchResult result = run_comm_bench(options, rendezvous);
  if (rank.rank != 0) return 0;
  std::ofstream file(result_path, std::ios::binary | std::ios::trunc);
  file << text_of(common, result) << std::flush;
  if (!file) {
    throw IoError(std::string("cannot write ") + result_path + ": no space, or no permission",
                  result_path, errno);
  }
  return 0;
}

}  // namespace

int run_bench_step(const BenchCommand& common, const BenchStepCommand& command) {
  refuse_inside_a_job("bench step");
  ScratchFolder folder;
  const std::string run_dir = folder.path() + "/run";
  TrainCommand train;
  train.config = command.config;
  train.overrides = measuring_overrides(command, run_dir);
  train.nproc = command.nproc;
  train.argv = {common.argv.at(0), "train", command.config};
  for (const std::string& setting : train.overrides) {
    train.argv.insert(train.argv.end(), {"--set", setting});
  }
  int exit_code = 0;
  {
    const OutputToError progress;
    exit_code = run_train(train);
  }
  if (exit_code == kInterruptedExitCode) return exit_code;
  if (exit_code != 0) {
    folder.keep();
    std::fprintf(stderr, "sluice: bench step: the run failed; its logs are in %s\n",
                 run_dir.c_str());
    return exit_code;
  }
  const LoadedConfig config = load_config(run_dir + "/config.yaml", {});
  StepBenchRun run;
  run.config = command.config;
  run.run_dir = run_dir;
  run.ranks = count_ranks(run_dir);
  run.dtype = name_of(config.run.train.dtype);
  run.warmup = command.warmup;
  run.loss_head_share = loss_head_share(config, run.ranks);
  // Measures again with the threads of a rank, which the plan has set, after the ranks have ended.
  // Not on a GPU, which no other process used; not in 16 bits, whose run decided how to multiply.
  if (!runs_on_gpu(config.run) && config.run.train.dtype == DType::kFloat32) {
    run.gemm_flops_per_s =
        measure_gemm_rate(config.run.train.dtype, at::Device(c10::DeviceType::CPU));
  }
  std::fputs(text_of(common, read_step_bench(run)).c_str(), stdout);
  return 0;
}

int run_bench_comm(const BenchCommand& common, const BenchCommCommand& command) {
  const CommBenchOptions options = comm_options(common, command);
  if (const char* path = std::getenv(kBenchResultVariable); path != nullptr) {
    if (const auto rank = rank_environment()) return run_comm_rank(common, options, *rank, path);
  }
  refuse_inside_a_job("bench comm");
  const CommRun run = launch_bench_comm(options.processes(), common.argv);
  std::fputs(run.result.c_str(), stdout);
  return run.exit_code;
}

int run_bench_adam(const BenchCommand& common, const BenchAdamCommand& command) {
  AdamBenchOptions options;
  if (!command.elems.empty()) {
    const auto elems = parse_count(command.elems);
    if (!elems || *elems == 0) {
      throw ConfigError("--elems: '" + command.elems + "' is not a count; write 32M or 33554432");
    }
    options.elems = *elems;
  }
  options.threads = command.threads > 0 ? command.threads : threads_per_rank(1);
  if (common.rounds > 0) options.rounds = common.rounds;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name_of(dtype) == command.dtype) options.dtype = dtype;
  }
  std::fputs(text_of(common, run_adam_bench(options)).c_str(), stdout);
  return 0;
}

int run_bench_nvme(const BenchCommand& common, const BenchNvmeCommand& command) {
  const NvmeBenchResult result = bench_nvme(nvme_options(command));
  std::fputs((common.json ? to_json(result) : table_of(result)).c_str(), stdout);
  return 0;
}

}  // namespace sluice
