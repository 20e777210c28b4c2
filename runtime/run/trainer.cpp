#include "runtime/run/trainer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/engine/multiplied_in.hpp"
#include "runtime/generate/terminal_text.hpp"
#include "runtime/launch/error_report.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/plan/nccl_memory.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/run/generator.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/planned_engine.hpp"
#include "runtime/run/report/non_finite.hpp"
#include "runtime/run/run_report.hpp"
#include "runtime/run/step_meter.hpp"
#include "runtime/run/step_pace.hpp"
#include "zero/loss_scaler.hpp"

namespace sluice {
namespace {

// Fills in the checkpoint directory for a save on request of a run without checkpoints.
SavingOptions saving_options(const TrainerOptions& options) {
  SavingOptions saving = options.saving;
  if (saving.checkpoint.dir.empty()) saving.checkpoint.dir = options.output_dir + "/checkpoints";
  return saving;
}

// Resumes from the image of an earlier run if no checkpoint is newer. An image, like a folder of
// checkpoints, is removed only if --resume names another source.
EngineOptions engine_options(const TrainerOptions& options, Communicator& comm,
                             Watchdog& watchdog) {
  EngineOptions engine = options.engine;
  ImageRequest& image = engine.tiers.image;
  const std::string& resume = options.saving.resume;
  engine.later_weights = resume != "never";
  image.look = engine.offload.image && resume == "auto";
  image.spare = !image.look && (resume == "auto" || resume == "never");
  const auto alive = [&watchdog] { watchdog.pulse(); };
  FileSystem& files = local_file_system();
  if (image.look) {
    const std::string dir = saving_options(options).checkpoint.dir;
    image.checkpoint = newest_step(dir, files, comm);
    image.read_checkpoint = [=, &files, &comm] {
      return newest_whole_step(dir, files, comm, alive);
    };
  } else if (engine.offload.image && !image.spare) {
    image.read_checkpoint = [=, &files, &comm] {
      check_whole(resume, files, comm, alive);
      return std::int64_t{0};
    };
  }
  return engine;
}

at::Device device_of(const TrainerOptions& options) {
  if (!options.on_gpu) return c10::DeviceType::CPU;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options.local_rank)};
}

// NCCL's buffers of a rank; 0 on a CPU.
std::int64_t nccl_bytes_of(const TrainerOptions& options, const StepPlan& plan) {
  return options.on_gpu ? nccl_buffer_bytes(plan.shape, options.budgets.ranks_of_host) : 0;
}

// Checks, before a rank takes memory, that its plan fits its budgets and, without NCCL's buffers,
// whose bound might refuse a run that fits, the free memory of the card.
void check_room(const TrainerOptions& options, const StepPlan& plan, at::Device device) {
  const MemoryPlan memory =
      plan_memory(write_train_step(plan.shape), options.budgets, nccl_bytes_of(options, plan));
  check_budget(plan, memory);
  if (options.on_gpu) check_card(plan, memory, available_bytes(device), device.index());
}

RowSource train_rows(const TrainingData& data, std::int64_t global_batch) {
  return [&data, global_batch](std::int64_t step, std::int64_t first, std::int64_t rows,
                               SampleRows& out) {
    data.train_rows(step, global_batch, first, rows, out);
  };
}

// The validation set that an evaluation reads: one of data.valid_sets, or kMainSet.
using ValidSetIndex = std::atomic<std::size_t>;
constexpr std::size_t kMainSet = static_cast<std::size_t>(-1);

RowSource valid_rows(const TrainingData& data, std::int64_t global_batch,
                     const ValidSetIndex& set) {
  return [&data, global_batch, &set](std::int64_t index, std::int64_t first, std::int64_t rows,
                                     SampleRows& out) {
    if (set == kMainSet) return data.valid_rows(index, global_batch, first, rows, out);
    data.set_rows(set, index, global_batch, first, rows, out);
  };
}

// The loss scale of a run: 1 in other types than fp16. Not thread-safe.
class RunLossScale {
 public:
  explicit RunLossScale(const EngineOptions& options) {
    if (options.train.dtype == DType::kFloat16) scaler_.emplace(options.loss_scale);
  }

  [[nodiscard]] double scale() const { return scaler_ ? scaler_->scale() : 1.0; }
  [[nodiscard]] LossScaleState state() const {
    return scaler_ ? scaler_->state() : LossScaleState{1, 0, 0};
  }
  void restore(const LossScaleState& saved) {
    if (scaler_) scaler_->restore(saved);
  }
  // True if the step overflowed and is skipped; the scale may then fall.
  [[nodiscard]] bool skips(const StepResult& result) const {
    return scaler_ && result.overflowed();
  }
  // Called after a step. Returns false if the step overflowed at the lowest scale.
  [[nodiscard]] bool update(bool skipped) { return !scaler_ || scaler_->update(skipped); }

 private:
  std::optional<LossScaler> scaler_;
};

TrainingError lowest_scale_error(std::int64_t step, double scale) {
  return TrainingError("step " + std::to_string(step) +
                       ": the gradients overflow fp16 at a loss scale of " + std::to_string(scale) +
                       ", the lowest that loss_scale.min allows; train in bf16, or lower "
                       "optimizer.lr");
}

// Whether any rank was asked to stop. Collective.
bool any_rank_stops(Communicator& comm) {
  const double mine = stop_requested() ? 1.0 : 0.0;
  const std::vector<double> all = comm.all_gather_values({&mine, 1});
  return std::any_of(all.begin(), all.end(), [](double asked) { return asked > 0; });
}

// After all collectives: no rank waits while a slow tracker takes the last steps.
constexpr const char* kEnding = "ending the run's reports";

// The training loop of one rank, with its engine, meters, report and saver. Collective: every rank
// makes the same calls. Not thread-safe. The saver's thread and the engine's lanes are joined
// before the destruction of the members that the threads use.
class Trainer {
 public:
  // `plan`: of options.engine and its model.
  Trainer(const TrainerOptions& options, MeshComms& comms, const TrainingData& data,
          Watchdog& watchdog, double gemm_rate, StepPlan plan)
      : options_(options),
        comm_(comms.world()),
        data_(data),
        watchdog_(watchdog),
        device_(device_of(options)),
        loss_scale_(options.engine),
        pace_(comm_, options.engine.train.log_every),
        meter_(options, device_, gemm_rate, comm_.size()),
        engine_(planned_engine(
            engine_options(options, comm_, watchdog),
            make_model(options.engine.model, options.engine.part, &comms.tensor()), std::move(plan),
            comms, device_, train_rows(data, global_batch_of(options.engine)),
            valid_rows(data, global_batch_of(options.engine), valid_set_), observer())),
        memory_(plan_memory(engine_.train_program(), options.budgets,
                            nccl_bytes_of(options, engine_.plan()))),
        report_(options, engine_, memory_, comm_, gemm_rate),
        saver_(saving_options(options),
               {.engine_options = options_.engine,
                .data = data,
                .output_dir = options.output_dir,
                .global_batch = global_batch_of(options.engine),
                .room_bytes = room_for_saving(memory_),
                .local_ranks = options.budgets.ranks_of_host,
                .events = options.events},
               engine_, comms.world(), watchdog) {}

  int run() {
    report_.describe_run();
    const TrainOptions& train = options_.engine.train;
    const bool resumed = resume();
    const std::int64_t first = stands_.step + 1;
    if (resumed && first > train.steps) return 0;
    if (options_.on_gpu) engine_.reserve_device(memory_.of(Tier::kDevice).peak);
    report_.open(first);
    watchdog_.set_phase("preparing step " + std::to_string(first));
    saver_.note(stands_);
    bool stopped = false;
    for (std::int64_t step = first; step <= train.steps && !stopped; ++step) {
      stopped = run_step(step);
    }
    report_.clear_progress();
    if (stopped) engine_.commit_image();
    const bool saved = report_.count_save([&] { return saver_.finish(stands_, stopped); });
    if (!stopped) engine_.end_image();
    report_.write_trace();
    if (stopped) {
      const std::string why = saver_.why_stopped(stands_.step);
      report_.say(why);
      report_stop(why);
      report_.summarize(saver_.saved_path(), saver_.can_resume() ? options_.resume_command : "");
      const PhaseScope ending = waits(kEnding);
      report_.ended(why, stands_.step, MlflowStatus::kKilled);
      return kInterruptedExitCode;
    }
    sample();
    report_.summarize(saver_.saved_path(),
                      saved && options_.next_commands ? options_.next_commands() : "");
    const PhaseScope ending = waits(kEnding);
    report_.ended("finished: all " + std::to_string(stands_.step) + " steps", stands_.step,
                  MlflowStatus::kFinished);
    return 0;
  }

 private:
  PhaseScope waits(const char* phase) { return {watchdog_, phase, Waiting::kYes}; }

  PhaseObserver observer() {
    return [this](const std::string& phase, bool waiting) {
      pace_.on_phase(waiting);
      watchdog_.set_phase(phase, waiting ? Waiting::kYes : Waiting::kNo);
    };
  }

  // Returns whether the run goes on, or is finished, rather than starts.
  bool resume() {
    const std::optional<RunProgress> from = saver_.resume();
    stands_.loss_scale = loss_scale_.state();
    if (!from) return false;
    stands_ = *from;
    updates_before_ = stands_.updates;
    loss_scale_.restore(from->loss_scale);
    return true;
  }

  // True if the run was asked to stop.
  bool run_step(std::int64_t step) {
    report_.step_begins(step);
    meter_.begin_step(engine_);
    const StepInput input = input_of(step);
    pace_.begin_step();
    const StepResult result = engine_.train_step(input);
    {
      const PhaseScope comparing = waits("comparing the ranks' paces");
      report_.warn(pace_.end_step(step), "straggler");
    }
    report_.keep_timings(step);  // before an evaluation, which overwrites the timings
    const bool skipped = judge(input, result);
    StepRecord record = meter_.record(engine_, input, result);
    record.tokens = saver_.samples_until(step) * options_.engine.model.seq;
    record.skipped = skipped;
    record.checkpoint_ms = saver_.take_stall_ms();
    watchdog_.pulse();
    stands_.step = step;
    stands_.loss_scale = loss_scale_.state();
    stands_.learning_rate = input.lr;
    saver_.note(stands_);
    const bool last = step == options_.engine.train.steps;
    const bool asked = RunSaver::says_stop(result.vote) || (last && any_rank_stops(comm_));
    // The launcher waits for the save of a stop, not for an evaluation.
    if (last && asked) (void)report_.count_save([&] { return saver_.finish(stands_, false); });
    bool stop = asked && !last;  // a run whose steps are all done is finished
    if (evaluates_after(step, stop)) stop = !evaluate(record, asked) && !last;
    const CountedTiers counted = meter_.counted(engine_);
    {
      const PhaseScope comparing = waits("comparing the ranks' timers and memory");
      report_.compare_ranks(record, counted);
    }
    report_.step_done(record, counted);
    if (counted.device) check_device_peak(engine_.plan(), memory_, record.memory.device_peak);
    if (!stop && !last) saver_.after_step(stands_, result.vote, 1e-3 * record.step_ms);
    return stop;
  }

  StepInput input_of(std::int64_t step) {
    const std::int64_t update = stands_.updates + 1;
    return {.step = step,
            .lr = learning_rate(options_.engine.optimizer, options_.engine.schedule,
                                options_.engine.train.steps, update),
            .update = update - stands_.before_moments,
            .loss_scale = loss_scale_.scale(),
            .vote = saver_.vote()};
  }

  // Returns true if the step was skipped for its loss scale. Throws TrainingError if training
  // cannot continue.
  bool judge(const StepInput& input, const StepResult& result) {
    const bool skipped = loss_scale_.skips(result);
    if (!result.finite() && !skipped) {
      saver_.complete();
      throw non_finite_error(engine_, comm_, watchdog_, input.step, result,
                             stands_.updates > updates_before_);
    }
    stands_.updates += skipped ? 0 : 1;
    if (!loss_scale_.update(skipped)) {
      saver_.complete();
      throw lowest_scale_error(input.step, input.loss_scale);
    }
    return skipped;
  }

  bool evaluates_after(std::int64_t step, bool stop) const {
    const TrainOptions& train = options_.engine.train;
    const bool has_data = data_.valid_samples() > 0 || !data_.valid_sets().empty();
    if (train.eval_steps == 0 || !has_data || stop) return false;
    return step == train.steps || (train.eval_every > 0 && step % train.eval_every == 0);
  }

  // False if the run was asked to stop meanwhile (not if `asked` before): then without a loss.
  bool evaluate(StepRecord& record, bool asked) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::pair<std::string, double>> losses;
    double sum = 0;
    for (std::size_t i = 0; i < data_.valid_sets().size(); ++i) {
      const std::optional<double> loss = loss_of(i, asked);
      if (!loss) return false;
      losses.emplace_back(data_.valid_sets()[i], *loss);
      sum += *loss;
    }
    // Sets alone: each has given the same number of tokens.
    const std::optional<double> loss = data_.valid_samples() > 0
                                           ? loss_of(kMainSet, asked)
                                           : sum / static_cast<double>(data_.valid_sets().size());
    if (!loss) return false;
    record.eval_losses = std::move(losses);
    record.eval_loss = loss;
    record.eval_ppl = std::exp(*loss);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    report_.evaluated(record, took.count());
    return true;
  }

  std::optional<double> loss_of(std::size_t set, bool asked) {
    valid_set_ = set;
    return engine_.evaluate(options_.engine.train.eval_steps, [this, asked] {
      const PhaseScope voting = waits("asking the ranks for requests to stop");
      return !asked && any_rank_stops(comm_);
    });
  }

  void sample() {
    const TrainOptions& train = options_.engine.train;
    if (train.sample_tokens == 0 || data_.tokenizer() == nullptr || data_.valid_samples() == 0) {
      return;
    }
    if (options_.engine.generate_positions == 0) {
      report_.say(
          "train.sample_tokens: left out, ranks that share a sequence (parallel.sequence) do not "
          "go on with one; `sluice generate` does, from a checkpoint");
      return;
    }
    watchdog_.set_phase("sampling");
    const Sampled text = sample_text(engine_, comm_, data_, train.sample_tokens, train.seed,
                                     [this] { watchdog_.pulse(); });
    if (comm_.rank() != 0) return;
    std::string shown = "--- the model goes on from here ---\n" + text.prompt +
                        "\n--- with this ---\n" + text.continuation + "\n";
    if (terminal_info(1).interactive) shown = escape_controls(shown);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  const TrainerOptions& options_;
  Communicator& comm_;  // communicator of all ranks
  const TrainingData& data_;
  Watchdog& watchdog_;
  const at::Device device_;
  RunLossScale loss_scale_;
  StepPace pace_;
  ValidSetIndex valid_set_{kMainSet};  // declared before the engine, which reads it
  StepMeter meter_;                    // made before the engine whose bytes the meter counts
  Engine engine_;
  const MemoryPlan memory_;
  RunReport report_;
  RunProgress stands_;               // progress after the last step
  std::int64_t updates_before_ = 0;  // of the run that this one continues
  RunSaver saver_;                   // declared last: the saver's thread reads the engine's plan
};

}  // namespace

int run_trainer(const TrainerOptions& options, MeshComms& comms, const TrainingData& data,
                Watchdog& watchdog) {
  const at::Device device = device_of(options);
  StepPlan plan =
      plan_step(options.engine, make_dry_model(options.engine.model, options.engine.part));
  check_room(options, plan, device);
  const double gemm_rate = measure_gemm_rate(multiplied_in(options.engine), device);
  // The limit starts after the measurement, which may take more than a small budget.
  if (options.on_gpu && options.budgets.device > 0) {
    limit_reserved_bytes(device, options.budgets.device - nccl_bytes_of(options, plan));
  }
  return Trainer(options, comms, data, watchdog, gemm_rate, std::move(plan)).run();
}

}  // namespace sluice
