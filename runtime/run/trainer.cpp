#include "runtime/run/trainer.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/generate/terminal_text.hpp"
#include "runtime/launch/error_report.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/observe/event_file.hpp"
#include "runtime/observe/metrics_writer.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/run/generator.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/peak_rate.hpp"
#include "runtime/run/planned_engine.hpp"
#include "runtime/run/step_pace.hpp"
#include "runtime/run/step_trace.hpp"
#include "zero/loss_scaler.hpp"

namespace sluice {
namespace {

std::int64_t global_batch_of(const EngineOptions& options) {
  return micro_batches_of(options) * options.train.micro_batch * options.dp;
}

DType multiplied_in(const EngineOptions& options) {
  return options.model.matmul == MatmulType::kFp32 ? DType::kFloat32 : options.train.dtype;
}

// Where a run saves that was not told to, when it is asked to.
SavingOptions saving_options(const TrainerOptions& options) {
  SavingOptions saving = options.saving;
  if (saving.checkpoint.dir.empty()) saving.checkpoint.dir = options.output_dir + "/checkpoints";
  return saving;
}

// With what a former run committed on NVMe, where no checkpoint is newer. As a folder
// of checkpoints, it is not removed unless --resume names what to go on from instead.
EngineOptions engine_options(const TrainerOptions& options, Communicator& comm) {
  EngineOptions engine = options.engine;
  ImageRequest& image = engine.tiers.image;
  const std::string& resume = options.saving.resume;
  image.look = engine.offload.image && resume == "auto";
  image.spare = !image.look && (resume == "auto" || resume == "never");
  if (image.look) {
    image.checkpoint =
        newest_step(saving_options(options).checkpoint.dir, local_file_system(), comm);
  }
  return engine;
}

at::Device device_of(const TrainerOptions& options) {
  if (!options.on_gpu) return c10::DeviceType::CPU;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options.local_rank)};
}

// Before a rank takes anything of its card: the plan must fit what is free there.
void check_room(const TrainerOptions& options, at::Device device) {
  const Model model = make_dry_model(unit_options(options.engine), options.engine.part);
  const StepPlan plan = plan_step(options.engine, model);
  const MemoryPlan memory = plan_memory(write_train_step(plan.shape), options.budgets);
  check_card(plan, memory, available_bytes(device), device.index());
}

class Trainer {
 public:
  Trainer(const TrainerOptions& options, MeshComms& comms, const TrainingData& data,
          Watchdog& watchdog, double gemm_rate)
      : options_(options),
        comm_(comms.world()),
        data_(data),
        watchdog_(watchdog),
        global_batch_(global_batch_of(options.engine)),
        device_(device_of(options)),
        peak_rate_(gemm_rate),
        baseline_(options.ranks_of_process == 1 ? allocation_count(CountedDevice::kHost).live : 0),
        scaler_(options.engine.loss_scale),
        pace_(comm_, options.engine.train.log_every),
        engine_(planned_engine(
            engine_options(options, comm_),
            make_model(unit_options(options.engine), options.engine.part, &comms.tensor()), comms,
            device_, train_rows(), valid_rows(), observer())),
        memory_(plan_memory(engine_.train_program(), options.budgets)),
        watch_(engine_.train_program(), engine_.plan().shape, memory_, options.rates,
               peak_rate_.flops_per_s()),
        progress_(progress_options(options)),
        saver_(saving_options(options),
               {.engine_options = options_.engine,
                .data = data,
                .output_dir = options.output_dir,
                .global_batch = global_batch_,
                .room_bytes = room_for_saving(memory_),
                .local_ranks = options.budgets.ranks_of_host},
               engine_, comms.world(), watchdog) {}

  int run() {
    log_start();
    const TrainOptions& train = options_.engine.train;
    const std::int64_t first = resume() + 1;
    if (first > 1 && first > train.steps) return 0;
    if (options_.on_gpu) reserve_bytes(device_, memory_.of(Tier::kDevice).peak);
    if (comm_.rank() == 0) open_records(first);
    saver_.note(stands_);
    bool stopped = false;
    for (std::int64_t step = first; step <= train.steps && !stopped; ++step) {
      stopped = run_step(step);
    }
    progress_.clear();
    if (stopped) engine_.commit_image();
    const bool saved = saver_.finish(stands_, stopped);
    if (!stopped) engine_.end_image();
    if (options_.trace && comm_.rank() == 0) {
      write_step_trace(options_.output_dir + "/trace.json", engine_.train_program(), traced_,
                       watch_.predicted(), traced_exchanges_);
    }
    if (stopped) {
      const std::string why = saver_.why_stopped(stands_.step);
      say(why);
      report_stop(why);
      return kInterruptedExitCode;
    }
    sample();
    if (saved && comm_.rank() == 0) std::fputs(options_.next_commands.c_str(), stdout);
    std::fflush(stdout);
    return 0;
  }

 private:
  RowSource train_rows() {
    return [this](std::int64_t step, std::int64_t first, std::int64_t rows, SampleRows& out) {
      data_.train_rows(step, global_batch_, first, rows, out);
    };
  }
  RowSource valid_rows() {
    return [this](std::int64_t index, std::int64_t first, std::int64_t rows, SampleRows& out) {
      data_.valid_rows(index, global_batch_, first, rows, out);
    };
  }
  PhaseObserver observer() {
    return [this](const std::string& phase, bool waiting) {
      pace_.on_phase(waiting);
      watchdog_.set_phase(phase, waiting ? Waiting::kYes : Waiting::kNo);
    };
  }
  static ProgressOptions progress_options(const TrainerOptions& options) {
    const TerminalInfo terminal = terminal_info(1);
    return {.log_every = options.engine.train.log_every,
            .interactive = terminal.interactive,
            .columns = terminal.columns};
  }

  void say(const std::string& line) {
    if (comm_.rank() == 0) log_info(line);
  }

  void log_start() {
    const ModelSpec& spec = engine_.spec();
    say("model: " + format_count(static_cast<double>(whole_param_count(spec))) + " parameters, " +
        std::to_string(spec.units.size()) + " units; " + std::to_string(comm_.size()) +
        " rank(s), ZeRO stage " + std::to_string(engine_.plan().shape.stage) + ", " +
        std::string(name_of(engine_.plan().shape.dtype)) + ", " + std::to_string(global_batch_) +
        " samples a step");
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      const TierPlan& planned = memory_.of(tier);
      if (planned.peak == 0) continue;
      say("planned " + std::string(name_of(tier)) + " peak: " + format_bytes(planned.peak) +
          " a rank (" + describe_tags(planned) + ")");
    }
  }

  std::string compare_paces(std::int64_t step) {
    const PhaseScope waiting(watchdog_, "comparing the ranks' paces", Waiting::kYes);
    return pace_.end_step(step);
  }

  void warn(const std::string& line) {
    if (comm_.rank() != 0 || line.empty()) return;
    progress_.clear();
    log_warning(line);
  }

  void open_records(std::int64_t first) {
    metrics_.emplace(options_.output_dir + "/metrics.jsonl", first);
    if (options_.tensorboard) {
      events_.emplace(options_.output_dir + "/tensorboard", host_name(), first);
    }
  }

  // The step that is done.
  std::int64_t resume() {
    const std::optional<RunProgress> from = saver_.resume();
    stands_.loss_scale = loss_scale();
    if (!from) return 0;
    stands_ = *from;
    if (scales_loss() && from->loss_scale.lives > 0) scaler_.restore(from->loss_scale);
    return from->step;
  }

  // True if the run was asked to stop.
  bool run_step(std::int64_t step) {
    const auto begin = std::chrono::steady_clock::now();
    reset_allocation_peak(CountedDevice::kHost);
    if (options_.on_gpu) reset_reserved_peak(device_);
    const double lr = learning_rate(options_.engine.optimizer, options_.engine.schedule,
                                    options_.engine.train.steps, stands_.updates + 1);
    const StepInput input{.step = step,
                          .lr = lr,
                          .update = stands_.updates + 1 - stands_.before_moments,
                          .loss_scale = scales_loss() ? scaler_.scale() : 1.0,
                          .vote = saver_.vote()};
    whole_step_ = engine_.next_step_is_whole();
    pace_.begin_step();
    const StepResult result = engine_.train_step(input);
    warn(compare_paces(step));
    // Now: an evaluation runs a program of its own.
    if (options_.trace && metrics_) {
      traced_ = engine_.timings();
      traced_exchanges_ = engine_.exchanges();
    }
    const bool skip = scales_loss() && result.overflowed();
    if (!result.finite() && !skip) stop_on_non_finite(step, result);
    stands_.updates += skip ? 0 : 1;
    if (scales_loss() && !scaler_.update(skip)) stop_at_lowest_scale(step, input.loss_scale);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    StepRecord record = make_record(input, result, took.count());
    record.skipped = skip;
    watchdog_.pulse();
    const bool stop = RunSaver::says_stop(result.vote);
    if (evaluates_after(step, stop)) evaluate(record);
    report(record);
    if (counted_tiers().device) {
      check_device_peak(engine_.plan(), memory_, record.memory.device_peak);
    }
    stands_.step = step;
    stands_.loss_scale = loss_scale();
    stands_.learning_rate = lr;
    saver_.note(stands_);
    if (!stop && step < options_.engine.train.steps) {
      saver_.after_step(stands_, result.vote, 1e-3 * took.count());
    }
    return stop;
  }

  [[noreturn]] void stop_on_non_finite(std::int64_t step, const StepResult& result) {
    saver_.complete();
    const std::string where = engine_.find_non_finite(step);
    const auto text = [](double value) -> std::string {
      if (std::isnan(value)) return "nan";  // whatever its sign bit says
      char digits[32];
      std::snprintf(digits, sizeof digits, "%g", value);
      return digits;
    };
    throw TrainingError("step " + std::to_string(step) + ": loss " + text(result.loss) +
                        ", grad norm " + text(result.grad_norm) +
                        "; the first non-finite value is made by " + where +
                        ". Nothing was updated. A lower optimizer.lr, longer warm-up or "
                        "train.clip usually cures this");
  }

  LossScaleState loss_scale() const {
    return scales_loss() ? scaler_.state() : LossScaleState{1, 0, 0};
  }
  bool scales_loss() const { return options_.engine.train.dtype == DType::kFloat16; }

  [[noreturn]] void stop_at_lowest_scale(std::int64_t step, double scale) {
    saver_.complete();
    throw TrainingError(
        "step " + std::to_string(step) + ": the gradients overflow fp16 at a loss scale of " +
        std::to_string(scale) +
        ", the lowest that loss_scale.min allows; train in bf16, or lower optimizer.lr");
  }

  StepRecord make_record(const StepInput& input, const StepResult& result, double step_ms) {
    StepRecord record;
    const double tokens = static_cast<double>(global_batch_ * options_.engine.model.seq);
    const std::int64_t step = input.step;
    record.step = step;
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.lr = input.lr;
    record.loss_scale = input.loss_scale;
    record.tokens = step * global_batch_ * options_.engine.model.seq;
    record.step_ms = step_ms;
    record.tokens_per_s = tokens / step_ms * 1e3;
    const double flops = engine_.plan().model_flops_per_step / comm_.size() / step_ms * 1e3;
    record.tflops = flops * 1e-12;
    record.mfu = peak_rate_.share(flops);
    if (options_.card_flops > 0) record.mfu_of_card = flops / options_.card_flops;
    record.memory.device_peak = options_.on_gpu
                                    ? reserved_peak_bytes(device_)
                                    : allocation_count(CountedDevice::kHost).peak - baseline_;
    const TierStore* tiers = engine_.tiers();
    record.memory.host_peak = tiers != nullptr ? tiers->host_peak_bytes() : 0;
    record.memory.resident_peak = peak_resident_bytes();
    record.memory.nvme = tiers != nullptr ? tiers->nvme_bytes() : 0;
    record.checkpoint_ms = saver_.take_stall_ms();
    record.timers_ms = {result.times.forward,   result.times.backward, result.times.comm,
                        result.times.optimizer, result.times.io,       result.times.data};
    return record;
  }

  bool evaluates_after(std::int64_t step, bool stop) const {
    const TrainOptions& train = options_.engine.train;
    if (train.eval_steps == 0 || data_.valid_samples() == 0 || stop) return false;
    return step == train.steps || (train.eval_every > 0 && step % train.eval_every == 0);
  }

  void evaluate(StepRecord& record) {
    const auto begin = std::chrono::steady_clock::now();
    record.eval_loss = engine_.evaluate(options_.engine.train.eval_steps);
    record.eval_ppl = std::exp(*record.eval_loss);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    progress_.clear();
    char line[128];
    std::snprintf(line, sizeof line, "step %lld: validation loss %.4f, perplexity %.2f (%.1f s)",
                  static_cast<long long>(record.step), *record.eval_loss, *record.eval_ppl,
                  took.count());
    say(line);
  }

  void report(StepRecord& record) {
    if (!metrics_) return;  // rank 0 reports
    const std::vector<std::string> compared = watch_.compare(record, counted_tiers());
    if (!compared.empty()) progress_.clear();
    for (const std::string& line : compared) say(line);
    metrics_->write(record);
    if (events_) events_->write(record);
    eta_.add(record.step_ms);
    const std::int64_t steps = options_.engine.train.steps;
    progress_.update({.step = record.step,
                      .steps = steps,
                      .loss = record.loss,
                      .grad_norm = record.grad_norm,
                      .lr = record.lr,
                      .step_ms = record.step_ms,
                      .tokens_per_s = record.tokens_per_s,
                      .mfu = record.mfu,
                      .mfu_of_card = record.mfu_of_card.value_or(0),
                      .device_bytes = record.memory.device_peak,
                      .eta_seconds = eta_.seconds(steps - record.step),
                      .skipped = record.skipped});
  }

  CountedTiers counted_tiers() const {
    const bool stores = !options_.on_gpu && engine_.tiers() != nullptr;
    const bool alone = options_.ranks_of_process == 1;  // else the counts are of several ranks
    return {.device = options_.on_gpu || alone,
            .host = stores,
            .nvme = stores,
            .step_time = whole_step_};
  }

  void sample() {
    const TrainOptions& train = options_.engine.train;
    if (train.sample_tokens == 0 || data_.tokenizer() == nullptr || data_.valid_samples() == 0) {
      return;
    }
    if (options_.engine.generate_positions == 0) {
      say("train.sample_tokens: left out, ranks that share a sequence (parallel.sequence) do not "
          "go "
          "on with one; `sluice generate` does, from a checkpoint");
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
  Communicator& comm_;  // of all ranks
  const TrainingData& data_;
  Watchdog& watchdog_;
  const std::int64_t global_batch_;
  const at::Device device_;
  PeakRate peak_rate_;
  const std::int64_t baseline_;  // counted bytes that are not the engine's
  LossScaler scaler_;
  StepPace pace_;
  Engine engine_;
  const MemoryPlan memory_;
  PlanWatch watch_;
  bool whole_step_ = true;
  ProgressPrinter progress_;
  EtaEstimator eta_;
  std::vector<OpTiming> traced_;  // of the last step
  std::vector<ExchangeTiming> traced_exchanges_;
  std::optional<MetricsWriter> metrics_;
  std::optional<EventFile> events_;
  RunProgress stands_;  // after the last step
  RunSaver saver_;      // last: its thread reads the engine's plan
};

}  // namespace

int run_trainer(const TrainerOptions& options, MeshComms& comms, const TrainingData& data,
                Watchdog& watchdog) {
  const at::Device device = device_of(options);
  if (options.on_gpu) check_room(options, device);
  const double gemm_rate = measure_gemm_rate(multiplied_in(options.engine), device);
  // From here on: what was measured may have taken more than a small budget.
  if (options.on_gpu && options.budgets.device > 0) {
    limit_reserved_bytes(device, options.budgets.device);
  }
  return Trainer(options, comms, data, watchdog, gemm_rate).run();
}

}  // namespace sluice
