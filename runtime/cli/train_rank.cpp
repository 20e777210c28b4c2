#include "runtime/cli/train_rank.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "base/posix/host_name.hpp"
#include "configs/derived.hpp"
#include "configs/validate.hpp"
#include "kernels/cpu/parallel.hpp"
#include "offload/host_placement.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/cli/help/version.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/next_commands.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/cli/setup/rank_setup.hpp"
#include "runtime/cli/setup/saving_setup.hpp"
#include "runtime/cli/setup/train_setup.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/thread_ranks.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/observe/run_events.hpp"
#include "runtime/observe/run_log.hpp"
#include "runtime/observe/status_line.hpp"
#include "runtime/plan/machine_profile.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/op_ranges.hpp"
#include "runtime/run/trainer.hpp"

namespace sluice {
namespace {

// Replaces the launcher for ranks that another program started: each rank checks, and rank 0 writes
// the run's files and holds the lock.
std::unique_ptr<RunFolders> prepare_joined_run(const TrainCommand& command,
                                               const LoadedConfig& config,
                                               const RankEnvironment& rank,
                                               const Tokenizer* tokenizer, Communicator& world) {
  const RunPlace place = place_of(config.run, rank);
  Planned planned = make_plan(config.run, place);
  if (rank.rank == 0 && config.run.parallel.pipeline > 1) {  // checks all stages together
    planned.stages = plan_largest_rank(config.run, place).stages;
  }
  if (rank.rank == 0) {
    check_fits(config.run, place, planned);
    check_free_memory(config.run, place, planned);
  }
  check_budget(planned.plan, planned.memory);
  check_saving(config, command.resume, place, planned.memory);
  const auto from = check_resumed(config, command.resume, place, tokenizer);
  // Rank 0 now moves earlier checkpoints, whose folder other ranks have looked at.
  world.barrier();
  if (rank.rank != 0) return nullptr;
  auto folders = std::make_unique<RunFolders>(config, command.resume);
  // The files of a finished run stay as they are: the resume finds nothing to do.
  if (!from || !from->finished()) write_run_files(config, place, planned);
  return folders;
}

// Shared by the ranks of one process: log, signals, cores and memory.
class RankProcess {
 public:
  RankProcess(const RunConfig& run, const RankEnvironment& rank, int ranks)
      : status_(std::make_unique<StatusLine>()),
        log_({.rank = rank.rank,
              .status = status_.get(),
              .also =
                  [this, first = rank.rank == 0](LogLevel level, std::string_view line) {
                    if (first) events_.on_log(level, line);
                  }}),
        ranks_(ranks) {
    install_stop_handlers();
    const Binding binding = bind_local_rank({.local_rank = rank.local_rank,
                                             .local_world_size = rank.local_world_size,
                                             .threads = run.launch.threads * ranks});
    if (rank.rank == 0) log_info(binding.summary);
    set_compute_threads(binding.threads);
    host_pages_ =
        place_rank_on_host(rank.local_rank, rank.local_world_size, binding.threads, binding.bound);
    // As many for a rank as it had as a process: libtorch's results may depend on their number.
    threads_of_rank_ = ranks == 1               ? binding.threads
                       : run.launch.threads > 0 ? run.launch.threads
                                                : threads_per_rank(ranks);
    set_libtorch_threads(threads_of_rank_);
    install_counting_allocators();
  }

  [[nodiscard]] StatusLine* status() const { return status_.get(); }
  // Written by rank 0 alone.
  [[nodiscard]] RunEvents& events() const { return events_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int threads_of_rank() const { return threads_of_rank_; }
  [[nodiscard]] const std::shared_ptr<PageSource>& host_pages() const { return host_pages_; }

 private:
  const std::unique_ptr<StatusLine> status_;
  mutable RunEvents events_;  // thread-safe; declared before the log, whose sink uses it
  const RunLog log_;
  const int ranks_;
  int threads_of_rank_ = 1;
  std::shared_ptr<PageSource> host_pages_;
};

WatchdogOptions watchdog_of(const RunConfig& run, int rank) {
  WatchdogOptions options = watchdog_options(run);
  options.on_hang = [rank](const ErrorReport& hang) {
    ErrorReport report = hang;
    report.rank = rank;  // the watchdog's thread is no rank's
    std::_Exit(report_failure(report));
  };
  return options;
}

RunEvent start_event(const std::vector<std::string>& argv, int world) {
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + word;
  return {.kind = "start",
          .text = text,
          .more = {{"version", std::string(build_facts().version)},
                   {"world", std::int64_t{world}},
                   {"host", host_name()}}};
}

TrainerOptions trainer_options(const TrainCommand& command, const LoadedConfig& config,
                               const RankEnvironment& rank, const TrainingData& data,
                               Communicator& comm, const RankProcess& process,
                               RunFolders* folders) {
  const RunConfig& run = config.run;
  const RunPlace place = place_of(run, rank);
  TrainerOptions options;
  options.engine = engine_options(run, place);
  options.engine.initial_weights = first_weights(run, rank.rank == 0);
  options.engine.tiers.nvme.run_id = run_id(run, comm);
  options.engine.tiers.nvme.rank = rank.rank;
  options.engine.tiers.host_pages = process.host_pages();
  options.budgets = rank_budgets(run, place);
  options.saving = saving_options(config, command.resume);
  options.saving.tokenizer = tokenizer_spec_of(run.data);
  if (rank.rank == 0) {
    options.next_commands = [&config, &data] { return next_commands(config, data); };
    const bool launched = has_launcher();
    if (launched) options.resume_command = resume_command(command.argv);
  }
  options.status = process.status();
  options.timers = run.output.timers;
  if (rank.rank == 0) options.rates = run_rates(run, place);
  options.output_dir = run.output.dir;
  options.trace = run.output.trace;
  options.tensorboard = run.output.tensorboard;
  options.memory_snapshot = run.output.memory_snapshot;
  if (rank.rank == 0 && !run.output.mlflow.empty()) {
    options.mlflow = {.dir = run.output.mlflow,
                      .output_dir = run.output.dir,
                      .source = config.path,
                      .params = config.resolved_values()};
  }
  options.engine.trace = options.trace;
  options.engine.device_times = options.trace || options.timers;
  if (run.output.nvtx) options.engine.watch = std::make_shared<OpRanges>();
  options.on_gpu = runs_on_gpu(run);
  if (options.on_gpu) {
    options.gpus_of_host = rank.local_world_size;
    options.card_flops = dense_peak_flops(gpu_name(gpu_of(rank)), run.train.dtype);
  }
  options.local_rank = options.on_gpu ? gpu_of(rank) : rank.local_rank;
  options.ranks_of_process = process.ranks();
  if (rank.rank == 0) {
    options.on_accepted = [dir = options.output_dir, folders] {
      accept_run_files(dir);
      if (folders != nullptr) folders->keep_moved();
    };
    options.events = &process.events();
    options.events->add(start_event(command.argv, rank.world_size));
  }
  return options;
}

using Connect = std::function<MeshComms(const LoadedConfig&, const TrainingData&)>;

// What ranks compare besides the configuration.
std::vector<RankFact> shared_facts(const TrainCommand& command, const TrainingData& data) {
  const bool names_folder = command.resume != "auto" && command.resume != "never";
  return {{"--resume", names_folder ? "a folder" : command.resume},
          {"data with the fingerprint", data.fingerprint()}};
}

// Rank 0's view, on every rank. Collective unless `resume` is "never".
std::optional<MatmulType> shared_resumed_matmul(const LoadedConfig& config,
                                                const std::string& resume, Communicator& comm) {
  if (resume == "never") return std::nullopt;
  constexpr double kNone = -1;
  const auto mine = comm.rank() == 0 ? resumed_matmul(config, resume) : std::nullopt;
  const std::array<double, 1> code{mine ? static_cast<double>(*mine) : kNone};
  const double common = comm.all_gather_values(code).front();
  if (common == kNone) return std::nullopt;
  return static_cast<MatmulType>(common);
}

// On the thread that the rank is, from its data to its last step.
int train_rank(const TrainCommand& command, LoadedConfig config, const RankEnvironment& rank,
               const RankProcess& process, const Connect& connect_rank) {
  set_libtorch_threads(process.threads_of_rank());
  Watchdog watchdog(watchdog_of(config.run, rank.rank));
  const TrainingData data(config.run.data, config.run.model.seq, config.run.train.seed);
  log_epochs(data.train(), config.run.train.steps,
             derive(config.run, rank.world_size).global_batch);
  settle_vocabulary(config, data.vocab_size(), data.tokenizer());
  watchdog.set_phase("rendezvous", Waiting::kYes);
  MeshComms comms = connect_rank(config, data);
  watchdog.set_phase("start-up");
  const MatmulDecision matmul = settle_matmul(
      config, runs_on_gpu(config.run), [&] { return shared_rates(config.run, comms.world()); },
      shared_resumed_matmul(config, command.resume, comms.world()));
  if (rank.rank == 0) log_matmul(matmul, config.run);
  const std::unique_ptr<RunFolders> folders =
      !has_launcher() ? prepare_joined_run(command, config, rank, data.tokenizer(), comms.world())
                      : nullptr;
  std::optional<WaitingRunFiles> waiting;
  if (folders) waiting.emplace(config.run.output.dir);
  const TrainerOptions options =
      trainer_options(command, config, rank, data, comms.world(), process, folders.get());
  try {
    return run_trainer(options, comms, data, watchdog);
  } catch (const std::exception& error) {
    // A launcher of this program writes the failure, whichever rank has it.
    if (rank.rank == 0 && !has_launcher()) {
      process.events().add({.kind = "end", .text = "failed: " + error_chain(error)});
    }
    throw;
  }
}

// Not of the ranks that this program's launcher started.
void check_joined(const LoadedConfig& config, const RankEnvironment& rank) {
  const LaunchOptions& launch = config.run.launch;
  if (launch.backend == Backend::kLocal && rank.world_size > 1) {
    throw ConfigError(config.place("launch.backend") +
                      ": launch.backend: local runs all ranks as threads of one process, and this "
                      "is one of " +
                      std::to_string(rank.world_size) +
                      " processes; leave launch.backend out, or start one process");
  }
  if (!launch.hostfile.empty() && !has_launcher()) {
    throw ConfigError(config.place("launch.hostfile") +
                      ": launch.hostfile: the hosts' ranks are started already (RANK or "
                      "SLURM_PROCID is set); leave launch.hostfile out, or run sluice once, "
                      "outside of srun and torchrun");
  }
}

int run_ranks_as_threads(const TrainCommand& command, const LoadedConfig& config,
                         const RankEnvironment& process_rank) {
  const int ranks = ranks_to_launch(command, config.run);
  validate(config, ranks);
  check_gpus(config, ranks);
  check_output(config);
  const RankProcess process(config.run, process_rank, ranks);
  std::vector<std::optional<MeshComms>> comms;
  for (MeshComms& mine : make_local_mesh_comms(
           Mesh(config.run.parallel, ranks), mesh_needs(config.run), launch_timeout(config.run))) {
    comms.emplace_back(std::move(mine));
  }
  const auto comms_of = [&](int rank) -> std::optional<MeshComms>& { return nth(comms, rank); };
  return run_thread_ranks(
      ranks,
      [&](int rank) {
        const RankEnvironment place{.rank = rank,
                                    .world_size = ranks,
                                    .local_rank = rank,
                                    .local_world_size = ranks,
                                    .master_addr = process_rank.master_addr,
                                    .master_port = process_rank.master_port};
        return train_rank(command, config, place, process,
                          [&](const LoadedConfig& /*config*/, const TrainingData& /*data*/) {
                            return std::move(*std::exchange(comms_of(rank), {}));
                          });
      },
      // Fails the other ranks' collectives. If the rank had already taken its communicators, their
      // destruction has done so.
      [&](int rank) { comms_of(rank).reset(); });
}

}  // namespace

int ranks_to_launch(const TrainCommand& command, const RunConfig& run) {
  if (command.nproc > 0) return command.nproc;
  if (run.launch.nproc > 0) return run.launch.nproc;
  return runs_on_gpu(run) ? std::max(1, visible_gpu_count()) : 1;
}

int run_rank(const TrainCommand& command, const RankEnvironment& rank) {
  LoadedConfig config = load_config(command.config, command.overrides);
  settle_model_from(config, command.resume);
  check_joined(config, rank);
  if (config.run.launch.backend == Backend::kLocal) {
    return run_ranks_as_threads(command, config, rank);
  }
  validate(config, rank.world_size);
  const bool launched = has_launcher();  // whose launcher said it
  if (!launched && rank.rank == 0) {
    note_hidden_gpus(config);
    print_notes(config);
  }
  set_gpu_queues(config.run);
  check_rank_gpus(config, rank);
  check_output(config);
  const RankProcess process(config.run, rank, 1);
  return train_rank(command, config, rank, process,
                    [&](const LoadedConfig& settled, const TrainingData& data) {
                      return connect(settled, rank, shared_facts(command, data));
                    });
}

}  // namespace sluice
