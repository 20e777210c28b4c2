#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/derived.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "kernels/cpu/parallel.hpp"
#include "offload/host_placement.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/checkpoint/checkpoint_catalog.hpp"
#include "runtime/checkpoint/file_system.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/hf_setup.hpp"
#include "runtime/cli/plan_setup.hpp"
#include "runtime/cli/rank_setup.hpp"
#include "runtime/cli/saving_setup.hpp"
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

// Throws BudgetError where it does not: with what would fit.
void check_fits(const RunConfig& run, const RunPlace& place, const Planned& planned) {
  try {
    check_budget(planned.plan, planned.memory);
  } catch (const BudgetError& error) {
    throw BudgetError(error.what() + ("\n" + advice(run, place)));
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (!file) throw IoError("cannot write " + path + ": no space, or no permission", path, errno);
}

// What is known before a rank starts goes to the run's folder.
void write_run_files(const LoadedConfig& config, const RunPlace& place, const Planned& planned) {
  const std::string& dir = config.run.output.dir;
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) {
    throw IoError("cannot create output.dir " + dir + ": " + failed.message(), dir, failed.value());
  }
  write_file(dir + "/config.yaml", config.resolved_yaml());
  // Rates that ranks have yet to measure come later: metrics.jsonl has what they predict.
  const std::optional<RunRates> rates = run_rates(config.run, place);
  const bool known = rates && rates->share_of_measured == 0;
  TimeReport time;
  if (known) time = predict_time(planned.program, planned.plan.shape, rates->rates);
  write_file(dir + "/plan.json",
             plan_json(planned.plan, planned.program, planned.memory, known ? &time : nullptr));
}

// What the launcher does for the ranks it starts: here each checks, and rank 0 writes.
void prepare_joined_run(const TrainCommand& command, const LoadedConfig& config,
                        const RankEnvironment& rank) {
  const RunPlace place = place_of(config.run, rank);
  const Planned planned = make_plan(config.run, place);
  if (rank.rank == 0) check_fits(config.run, place, planned);
  check_budget(planned.plan, planned.memory);
  check_saving(config, command.resume, planned.memory);
  if (rank.rank == 0) write_run_files(config, place, planned);
}

// One rank, started by us or by torchrun and its like.
int run_rank(const TrainCommand& command, const RankEnvironment& rank) {
  LoadedConfig config = load_config(command.config, command.overrides);
  settle_model_from(config);
  validate(config, rank.world_size);
  check_gpus(config, rank.local_world_size);
  const RunLog log({.rank = rank.rank, .interactive = terminal_info(1).interactive});
  install_stop_handlers();
  const Binding binding = bind_local_rank({.local_rank = rank.local_rank,
                                           .local_world_size = rank.local_world_size,
                                           .threads = config.run.launch.threads});
  if (rank.rank == 0) log_info(binding.summary);
  set_compute_threads(binding.threads);
  const auto host_pages =
      place_rank_on_host(rank.local_rank, rank.local_world_size, binding.threads, binding.bound);
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
  if (std::getenv("SLUICE_ERROR_FILE") == nullptr) prepare_joined_run(command, config, rank);
  TrainerOptions options;
  options.engine = engine_options(config.run, place);
  if (const auto weights = open_model_from(config.run)) {
    if (rank.rank == 0) log_model_from(config.run, *weights);
    options.engine.initial_weights = initial_weights(weights);
  }
  options.engine.tiers.nvme.run_id = run_id(config.run, *comm);
  options.engine.tiers.nvme.rank = rank.rank;
  options.engine.tiers.host_pages = host_pages;
  options.budgets = rank_budgets(config.run, place);
  options.saving = saving_options(config, command.resume);
  if (rank.rank == 0) options.rates = run_rates(config.run, place);
  options.output_dir = config.run.output.dir;
  options.trace = config.run.output.trace;
  options.engine.trace = options.trace;
  options.on_gpu = runs_on_gpu(config.run);
  options.local_rank = rank.local_rank;
  return run_trainer(options, *comm, data, watchdog);
}

// Of a folder's complete checkpoints; -1: there is none.
std::int64_t newest_generation(const std::string& checkpoint_dir) {
  std::int64_t newest = -1;
  for (const CatalogEntry& entry : catalog(local_file_system(), checkpoint_dir)) {
    newest = std::max(newest, entry.generation);
  }
  return newest;
}

// A run that failed of what need not happen again goes on from its newest checkpoint. Where it has
// made none yet it begins as it was told to: --resume auto would forget a --resume DIR.
int run_with_restarts(LaunchRequest request, int most, const std::string& checkpoint_dir) {
  const std::vector<std::string> as_told = request.argv;
  const std::int64_t before = most > 0 ? newest_generation(checkpoint_dir) : -1;
  LaunchResult result = run_launcher(request);
  for (int restart = 1; result.worth_restarting && restart <= most; ++restart) {
    const bool goes_on = newest_generation(checkpoint_dir) > before;
    request.argv = as_told;
    if (goes_on) request.argv.insert(request.argv.end(), {"--resume", "auto"});
    std::fprintf(stderr, "restart %d of %d (launch.max_restarts), %s\n", restart, most,
                 goes_on ? "from the newest checkpoint" : "as at first: nothing was saved since");
    result = run_launcher(request);
  }
  return result.exit_code;
}

int launch(const TrainCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  settle_model_from(config);
  const int world = ranks_to_launch(command, config.run);
  validate(config, world);
  check_gpus(config, world);
  const RunPlace place{.world = world, .local_ranks = world, .on_gpu = runs_on_gpu(config.run)};
  const MatmulDecision matmul =
      settle_matmul(config, place.on_gpu, [&] { return measure_matmul(config.run); });
  if (matmul.rates) log_matmul(matmul, config.run);
  const TrainingData data(config.run.data, config.run.model.seq, config.run.train.seed);
  settle_vocabulary(config, data);
  if (const auto weights = open_model_from(config.run)) weights->check_tied();
  const Planned planned = make_plan(config.run, place);
  if (command.dry_run) {
    std::printf("%s\n%s", describe_plan(planned.plan, planned.program, planned.memory).c_str(),
                draw(planned.program, planned.unit_names).c_str());
    std::fflush(stdout);
    check_fits(config.run, place, planned);
    return 0;
  }
  check_fits(config.run, place, planned);
  check_saving(config, command.resume, planned.memory);
  write_run_files(config, place, planned);
  LaunchRequest request;
  request.nproc = world;
  request.argv = command.argv;
  if (matmul.rates) {  // the ranks run what was planned, not what they would measure
    request.argv.push_back("--set");
    request.argv.push_back("train.matmul=" + name_of(matmul.type));
  }
  request.output_dir = config.run.output.dir;
  request.threads = config.run.launch.threads;
  prepare_saving(config, command.resume, request);
  return run_with_restarts(std::move(request), config.run.launch.max_restarts,
                           saving_options(config, command.resume).checkpoint.dir);
}

}  // namespace

int run_train(const TrainCommand& command) {
  if (const auto rank = rank_environment()) return run_rank(command, *rank);
  return launch(command);
}

}  // namespace sluice
