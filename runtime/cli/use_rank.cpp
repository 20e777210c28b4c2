#include "runtime/cli/use_rank.hpp"

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/cpu/parallel.hpp"
#include "offload/swap_directory.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/setup/rank_setup.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/plan/nccl_memory.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {
namespace fs = std::filesystem;

at::Device device_of(const RunConfig& run, const RankEnvironment& rank) {
  if (!runs_on_gpu(run)) return {c10::DeviceType::CPU};
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu_of(rank))};
}

}  // namespace

UseRank::UseRank(UsedWeights& weights, const RankEnvironment& rank)
    : weights_(weights), rank_(rank), watchdog_(watchdog_options(weights.config.run)) {
  LoadedConfig& config = weights.config;
  set_gpu_queues(config.run);
  check_rank_gpus(config, rank_);
  install_stop_handlers();
  const Binding binding = bind_local_rank({.local_rank = rank_.local_rank,
                                           .local_world_size = rank_.local_world_size,
                                           .threads = config.run.launch.threads});
  set_compute_threads(binding.threads);
  set_libtorch_threads(binding.threads);
  install_counting_allocators();
  watchdog_.set_phase("rendezvous", Waiting::kYes);
  comms_ = std::make_unique<MeshComms>(connect(config, rank_, {}));
  watchdog_.set_phase("start-up");
  (void)settle_matmul(config, runs_on_gpu(config.run),
                      [&] { return shared_rates(config.run, comm()); });
  if (!is_rank_0()) return;
  for (const std::string& note : weights.notes) log_info(note);
}

EngineOptions UseRank::options(EnginePurpose purpose) const {
  const RunConfig& run = weights_.config.run;
  EngineOptions options = engine_options(run, place_of(run, rank_));
  options.purpose = purpose;
  options.generate_positions = 0;
  options.initial_weights = weights_.source;
  return options;
}

std::unique_ptr<Engine> UseRank::make_engine(const EngineOptions& given) {
  const RunConfig& run = weights_.config.run;
  EngineOptions options = given;
  options.tiers.nvme.run_id = run_id(run, comm());
  options.tiers.nvme.rank = rank_.rank;
  Model model = make_model(options.model, options.part, &comms_->tensor());
  const StepPlan plan = plan_step(options, model);
  const Program program =
      plan.decoding ? write_decode_step(*plan.decoding) : write_eval_step(plan.shape);
  const RunPlace place = place_of(run, rank_);
  TierBudgets budgets = rank_budgets(run, place);
  if (options.generate_positions > 0 && options.generate_positions < options.model.seq) {
    budgets.smaller_step = "--max-tokens <fewer>";  // the cache has no more positions than these
  }
  const MemoryPlan memory = plan_memory(
      program, budgets, place.on_gpu ? nccl_buffer_bytes(plan.shape, place.local_ranks) : 0);
  check_budget(plan, memory);
  const at::Device device = device_of(run, rank_);
  if (device.is_cuda()) {
    check_card(plan, memory, available_bytes(device), device.index());
    const std::int64_t nccl = memory.of(Tier::kDevice).nccl;
    if (run.memory.device > 0) limit_reserved_bytes(device, run.memory.device - nccl);
  }
  watchdog_.set_phase("reading weights");
  options.out_of_memory = [smaller_step = budgets.smaller_step](const StepPlan& step,
                                                                const Program& held,
                                                                const std::string& message) {
    return out_of_device_memory(step, plan_memory(held, {.smaller_step = smaller_step}), message);
  };
  try {
    auto engine = std::make_unique<Engine>(
        options, std::move(model), plan, *comms_, device, RowSource(), RowSource(),
        [this](const std::string& phase, bool waiting) {
          watchdog_.set_phase(phase, waiting ? Waiting::kYes : Waiting::kNo);
        });
    watchdog_.pulse();
    return engine;
  } catch (const SwapDirectoryError& error) {
    // The folder is most often the training run's own, from the checkpoint's configuration.
    throw IoError(error.problem() +
                      ": read the model without the folder, by --set offload.parameters=device "
                      "(or host), or set offload.nvme_path to another folder",
                  error.path(), error.error_number());
  }
}

RankEnvironment own_rank() {
  if (const auto rank = rank_environment()) return *rank;
  return {};
}

bool starts_ranks(int nproc) { return nproc > 1 && !rank_environment(); }

int launch_users(int nproc, const std::vector<std::string>& argv, int threads) {
  TemporaryFolder logs;
  LaunchRequest request;
  request.nproc = nproc;
  request.argv = argv;
  request.output_dir = logs.path();
  request.threads = threads;
  request.ends_with_reader = true;
  const LaunchResult result = run_launcher(request);
  const int exit_code = result.exit_code;
  const bool in_order = exit_code == 0 || exit_code == kInterruptedExitCode;
  if (in_order && result.reader_gone) return kReaderGoneExitCode;
  if (exit_code == 0 && result.output_lost) refuse_lost_output();
  // The launcher's message about a failure names a log in this folder.
  if (exit_code != 0 && exit_code != kInterruptedExitCode) logs.keep();
  return exit_code;
}

TemporaryFolder::TemporaryFolder() {
  path_ = (fs::temp_directory_path() / "sluice-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw IoError("cannot make a folder like " + path_ + ": no space, or no permission", path_,
                  errno);
  }
}

TemporaryFolder::~TemporaryFolder() {
  if (kept_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace sluice
