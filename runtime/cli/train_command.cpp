#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

#include "configs/derived.hpp"
#include "configs/offload_rules.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "kernels/cpu/parallel.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/run_setup.hpp"
#include "runtime/engine/machine.hpp"
#include "runtime/engine/matmul_choice.hpp"
#include "runtime/engine/plan_text.hpp"
#include "runtime/engine/trainer.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/observe/run_log.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/program/program_text.hpp"
#include "runtime/program/step_writer.hpp"

namespace sluice {
namespace {

int ranks_to_launch(const TrainCommand& command, const RunConfig& run) {
  if (command.nproc > 0) return command.nproc;
  if (run.launch.nproc > 0) return run.launch.nproc;
  return runs_on_gpu(run) ? std::max(1, visible_gpu_count()) : 1;
}

void check_gpus(const LoadedConfig& config, int local_ranks) {
  if (!runs_on_gpu(config.run)) return;
  for (const PlacedState& state : placed_states(config.run.offload)) {
    if (state.tier == Tier::kDevice) continue;
    const std::string key(state.key);
    throw ConfigError(config.place(key) + ": " + key + ": " + std::string(name_of(state.tier)) +
                      ": memory tiers are written for CPU ranks; the GPU's copies are not; leave " +
                      std::string(state.name) +
                      " on the device, or set launch.backend to gloo for a run on the CPU");
  }
  if (config.run.recompute.mode == RecomputeMode::kSelective) {
    throw ConfigError(config.place("recompute.mode") +
                      ": recompute.mode: selective is of the explicit units, which run on CPUs so "
                      "far; set none or full, or launch.backend to gloo for a run on the CPU");
  }
  const int gpus = visible_gpu_count();
  if (local_ranks > gpus) {
    throw ConfigError(config.place("launch.nproc") +
                      ": launch.nproc: " + std::to_string(local_ranks) +
                      " ranks need as many GPUs, and " + std::to_string(gpus) +
                      " are visible; lower launch.nproc, or set launch.backend to gloo for a run "
                      "on the CPU");
  }
}

// The model's vocabulary: the data's where none is given.
void settle_vocabulary(LoadedConfig& config, const TrainingData& data) {
  std::int64_t& vocab = config.run.model.vocab;
  if (vocab == 0) vocab = data.vocab_size();
  if (vocab < data.vocab_size()) {
    throw ConfigError(config.place("model.vocab") + ": model.vocab: " + std::to_string(vocab) +
                      " is less than the " + std::to_string(data.vocab_size()) +
                      " ids of the data's tokenizer; leave it out to take those");
  }
}

// Rank 0's rates on every rank.
MatmulRates shared_rates(const RunConfig& run, Communicator& comm) {
  MatmulRates rates;
  if (comm.rank() == 0) rates = measure_matmul(run);
  const std::array<double, 2> mine{rates.native, rates.fp32};
  const std::vector<double> all = comm.all_gather_values(mine);
  return {all[0], all[1]};
}

// Names the run where it keeps files beside those of other runs: the same on every rank.
std::string run_id(const RunConfig& run, Communicator& comm) {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::array<double, 1> mine{static_cast<double>(now.count())};  // exact: below 2^53
  const double micros = comm.all_gather_values(mine).front();          // rank 0's
  const auto seconds = static_cast<std::time_t>(micros / 1e6);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), " of %04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                utc.tm_sec, static_cast<int>(micros - static_cast<double>(seconds) * 1e6));
  return run.output.dir + text.data();
}

void log_matmul(const MatmulDecision& decision, const RunConfig& run) {
  const std::string text = describe_matmul(decision, run.train.dtype);
  if (!text.empty()) log_info(text);
}

struct Planned {
  StepPlan plan;
  std::vector<std::string> unit_names;
  Program program;
  MemoryPlan memory;
};

RunPlace place_of(const RunConfig& run, const RankEnvironment& rank) {
  return {
      .world = rank.world_size, .local_ranks = rank.local_world_size, .on_gpu = runs_on_gpu(run)};
}

Planned make_plan(const RunConfig& run, const RunPlace& place) {
  set_libtorch_threads(run.launch.threads > 0 ? run.launch.threads : threads_per_rank(place.world));
  const EngineOptions options = engine_options(run, place);
  const Model model = make_model(options.model);
  Planned planned{plan_step(options, model), {}, {}, {}};
  for (const UnitSpec& unit : model.spec.units) planned.unit_names.push_back(unit.name);
  planned.program = write_train_step(planned.plan.shape);
  planned.memory = plan_memory(planned.program, options.tiers.nvme, rank_budgets(run, place));
  return planned;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (!file) throw IoError("cannot write " + path + ": no space, or no permission", path, errno);
}

// What is known before a rank starts goes to the run's folder.
void write_run_files(const LoadedConfig& config, const Planned& planned) {
  const std::string& dir = config.run.output.dir;
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) {
    throw IoError("cannot create output.dir " + dir + ": " + failed.message(), dir, failed.value());
  }
  write_file(dir + "/config.yaml", config.resolved_yaml());
  write_file(dir + "/plan.json", plan_json(planned.plan, planned.program, planned.memory));
}

std::unique_ptr<Communicator> connect(const LoadedConfig& config, const RankEnvironment& rank) {
  if (rank.world_size == 1 && !runs_on_gpu(config.run)) {
    return std::move(make_local_communicators(1).front());
  }
  CommOptions options;
  options.rank = rank.rank;
  options.size = rank.world_size;
  options.master_addr = rank.master_addr;
  options.master_port = rank.master_port;
  options.timeout = std::chrono::milliseconds(
      static_cast<std::int64_t>(config.run.launch.timeout_seconds * 1000));
  if (runs_on_gpu(config.run)) return make_nccl_communicator(options);
  // Ranks of one host exchange through its memory; launch.backend: gloo asks for the network.
  return config.run.launch.backend == Backend::kGloo ? make_gloo_communicator(options)
                                                     : make_cpu_communicator(options);
}

// What the launcher does for the ranks it starts: here each checks, and rank 0 writes.
void prepare_joined_run(const LoadedConfig& config, const RankEnvironment& rank) {
  const Planned planned = make_plan(config.run, place_of(config.run, rank));
  check_budget(planned.plan, planned.memory);
  if (rank.rank == 0) write_run_files(config, planned);
}

// One rank, started by us or by torchrun and its like.
int run_rank(const TrainCommand& command, const RankEnvironment& rank) {
  LoadedConfig config = load_config(command.config, command.overrides);
  validate(config, rank.world_size);
  check_gpus(config, rank.local_world_size);
  const RunLog log({.rank = rank.rank, .interactive = terminal_info(1).interactive});
  install_stop_handlers();
  const Binding binding = bind_local_rank({.local_rank = rank.local_rank,
                                           .local_world_size = rank.local_world_size,
                                           .threads = config.run.launch.threads});
  if (rank.rank == 0) log_info(binding.summary);
  set_compute_threads(binding.threads);
  set_libtorch_threads(binding.threads);
  install_counting_allocators();
  const auto timeout = std::chrono::milliseconds(
      static_cast<std::int64_t>(config.run.launch.timeout_seconds * 1000));
  // Half the collectives' time: a rank that hangs speaks before its peers give up on it.
  Watchdog watchdog({.timeout = timeout / 2, .waiting_timeout = timeout * 2});
  const TrainingData data(config.run.data, config.run.model.seq, config.run.train.seed);
  settle_vocabulary(config, data);
  watchdog.set_phase("rendezvous", Waiting::kYes);
  const std::unique_ptr<Communicator> comm = connect(config, rank);
  watchdog.set_phase("start-up");
  const RunPlace place = place_of(config.run, rank);
  const MatmulDecision matmul =
      settle_matmul(config, place.on_gpu, [&] { return shared_rates(config.run, *comm); });
  if (rank.rank == 0) log_matmul(matmul, config.run);
  if (std::getenv("SLUICE_ERROR_FILE") == nullptr) prepare_joined_run(config, rank);
  TrainerOptions options;
  options.engine = engine_options(config.run, place);
  options.engine.tiers.nvme.run_id = run_id(config.run, *comm);
  options.engine.tiers.nvme.rank = rank.rank;
  options.budgets = rank_budgets(config.run, place);
  options.output_dir = config.run.output.dir;
  options.trace = config.run.output.trace;
  options.engine.trace = options.trace;
  options.on_gpu = runs_on_gpu(config.run);
  options.local_rank = rank.local_rank;
  return run_trainer(options, *comm, data, watchdog);
}

int launch(const TrainCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  const int world = ranks_to_launch(command, config.run);
  validate(config, world);
  check_gpus(config, world);
  const RunPlace place{.world = world, .local_ranks = world, .on_gpu = runs_on_gpu(config.run)};
  const MatmulDecision matmul =
      settle_matmul(config, place.on_gpu, [&] { return measure_matmul(config.run); });
  if (matmul.rates) log_matmul(matmul, config.run);
  const TrainingData data(config.run.data, config.run.model.seq, config.run.train.seed);
  settle_vocabulary(config, data);
  const Planned planned = make_plan(config.run, place);
  if (command.dry_run) {
    std::printf("%s\n%s", describe_plan(planned.plan, planned.program, planned.memory).c_str(),
                draw(planned.program, planned.unit_names).c_str());
    std::fflush(stdout);
    check_budget(planned.plan, planned.memory);
    return 0;
  }
  check_budget(planned.plan, planned.memory);
  write_run_files(config, planned);
  LaunchRequest request;
  request.nproc = world;
  request.argv = command.argv;
  if (matmul.rates) {  // the ranks run what was planned, not what they would measure
    request.argv.push_back("--set");
    request.argv.push_back("train.matmul=" + name_of(matmul.type));
  }
  request.output_dir = config.run.output.dir;
  request.threads = config.run.launch.threads;
  return run_launcher(request);
}

}  // namespace

int run_train(const TrainCommand& command) {
  if (command.resume != "auto" && command.resume != "never") {
    throw ConfigError("--resume " + command.resume +
                      ": this version writes and reads no checkpoints; use --resume never");
  }
  if (const auto rank = rank_environment()) return run_rank(command, *rank);
  return launch(command);
}

}  // namespace sluice
