#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "configs/derived.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "kernels/cpu/parallel.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/engine/machine.hpp"
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

bool runs_on_gpu(const RunConfig& run) {
  if (run.launch.backend == Backend::kGloo) return false;
  return run.launch.backend == Backend::kNccl ||
         (cuda_module_is_built() && visible_gpu_count() > 0);
}

int ranks_to_launch(const TrainCommand& command, const RunConfig& run) {
  if (command.nproc > 0) return command.nproc;
  if (run.launch.nproc > 0) return run.launch.nproc;
  return runs_on_gpu(run) ? std::max(1, visible_gpu_count()) : 1;
}

void check_gpus(const LoadedConfig& config, int local_ranks) {
  if (!runs_on_gpu(config.run)) return;
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

EngineOptions engine_options(const RunConfig& run, int world) {
  EngineOptions options;
  options.model = run.model;
  options.train = run.train;
  options.optimizer = run.optimizer;
  options.schedule = run.schedule;
  options.zero = run.zero;
  options.recompute = run.recompute;
  options.loss_scale = run.loss_scale;
  const Derived derived = derive(run, world);
  options.dp = derived.dp;
  options.model.kv_heads = derived.kv_heads;
  options.model.ffn = derived.ffn;
  return options;
}

struct Planned {
  StepPlan plan;
  std::vector<std::string> unit_names;
  Program program;
  MemoryReport memory;
};

Planned make_plan(const RunConfig& run, int world) {
  set_libtorch_threads(run.launch.threads > 0 ? run.launch.threads : threads_per_rank(world));
  const EngineOptions options = engine_options(run, world);
  const Model model = make_model(options.model);
  Planned planned{plan_step(options, model), {}, {}, {}};
  for (const UnitSpec& unit : model.spec.units) planned.unit_names.push_back(unit.name);
  planned.program = write_train_step(planned.plan.shape);
  planned.memory = add_up(planned.program);
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
  write_file(dir + "/plan.json",
             plan_json(planned.plan, planned.program, planned.memory, config.run.memory.device));
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
  const Planned planned = make_plan(config.run, rank.world_size);
  check_budget(planned.plan, planned.memory, config.run.memory.device);
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
  if (std::getenv("SLUICE_ERROR_FILE") == nullptr) prepare_joined_run(config, rank);
  watchdog.set_phase("rendezvous", Waiting::kYes);
  const std::unique_ptr<Communicator> comm = connect(config, rank);
  watchdog.set_phase("start-up");
  TrainerOptions options;
  options.engine = engine_options(config.run, rank.world_size);
  options.output_dir = config.run.output.dir;
  options.trace = config.run.output.trace;
  options.on_gpu = runs_on_gpu(config.run);
  options.local_rank = rank.local_rank;
  return run_trainer(options, *comm, data, watchdog);
}

int launch(const TrainCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  const int world = ranks_to_launch(command, config.run);
  validate(config, world);
  check_gpus(config, world);
  const TrainingData data(config.run.data, config.run.model.seq, config.run.train.seed);
  settle_vocabulary(config, data);
  const Planned planned = make_plan(config.run, world);
  if (command.dry_run) {
    std::printf("%s\n%s", describe_plan(planned.plan, planned.program, planned.memory).c_str(),
                draw(planned.program, planned.unit_names).c_str());
    std::fflush(stdout);
    check_budget(planned.plan, planned.memory, config.run.memory.device);
    return 0;
  }
  check_budget(planned.plan, planned.memory, config.run.memory.device);
  write_run_files(config, planned);
  LaunchRequest request;
  request.nproc = world;
  request.argv = command.argv;
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
