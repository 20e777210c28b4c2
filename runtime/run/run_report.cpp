#include "runtime/run/run_report.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/log_level.hpp"
#include "base/posix/host_name.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/run/step_meter.hpp"
#include "runtime/run/step_trace.hpp"
#include "runtime/run/trainer.hpp"

namespace sluice {
namespace {

// Measured over planned, less one: a larger difference is an event.
constexpr double kMemoryTolerance = 0.03;
constexpr double kStepTimeTolerance = 0.25;

}  // namespace

RunReport::RunReport(const TrainerOptions& options, const Engine& engine, const MemoryPlan& memory,
                     Communicator& comm, double gemm_rate)
    : options_(options),
      engine_(engine),
      memory_(memory),
      comm_(comm),
      watch_(engine.train_program(), engine.plan().shape, memory, options.rates, gemm_rate),
      no_status_(stdout, false),
      progress_(options.engine.train.log_every,
                options.status != nullptr ? *options.status : no_status_),
      timers_(comm, options.timers),
      snapshots_(options.memory_snapshot, options.output_dir, comm.rank()) {}

void RunReport::describe_run() const {
  const ModelSpec& spec = engine_.spec();
  const StepShape& shape = engine_.plan().shape;
  say("model: " + format_count(static_cast<double>(whole_param_count(spec))) + " parameters, " +
      counted(std::ssize(spec.units), "unit") + "; " +
      counted(comm_.size(), options_.on_gpu ? "GPU rank" : "CPU rank") + ", ZeRO stage " +
      std::to_string(shape.stage) + ", " + std::string(name_of(shape.dtype)) + ", " +
      counted(global_batch_of(options_.engine), "sample") + " a step");
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const TierPlan& planned = memory_.of(tier);
    if (planned.peak == 0) continue;
    say("planned " + std::string(name_of(tier)) + " peak: " + format_bytes(planned.peak) +
        " a rank (" + describe_tags(planned) + ")");
  }
}

void RunReport::open(std::int64_t first) {
  if (comm_.rank() != 0) return;
  if (options_.on_accepted) options_.on_accepted();
  summary_.emplace(options_.gpus_of_host);
  metrics_.emplace(options_.output_dir + "/metrics.jsonl", first);
  if (options_.events != nullptr) {
    options_.events->open(options_.output_dir + "/events.jsonl", first <= 1);
  }
  if (options_.tensorboard) {
    events_.emplace(options_.output_dir + "/tensorboard", host_name(), first);
  }
  if (!options_.mlflow.dir.empty()) mlflow_.emplace(options_.mlflow, first);
}

void RunReport::say(const std::string& line) const {
  if (comm_.rank() == 0) log_info(line);
}

void RunReport::warn(const std::string& line, const char* kind) {
  if (comm_.rank() != 0 || line.empty()) return;
  note({.kind = kind, .text = line});
  log_warning(line);
}

void RunReport::keep_timings(std::int64_t step) {
  snapshot_timings_.clear();
  if (snapshots_.takes(step)) snapshot_timings_ = engine_.timings();
  if (!options_.trace || !metrics_) return;
  traced_ = engine_.timings();
  traced_exchanges_ = engine_.exchanges();
}

void RunReport::compare_ranks(const StepRecord& record, const CountedTiers& counted) {
  if (++steps_ == PlanWatch::kFirstCompared) compare_peaks(record, counted);
  timers_.add(record);
  const TrainOptions& train = options_.engine.train;
  const bool due = record.step % train.log_every == 0 || record.step >= train.steps;
  timers_line_ = due ? timers_.line() : "";
}

void RunReport::compare_peaks(const StepRecord& record, const CountedTiers& counted) {
  if (comm_.size() == 1) return;
  const PeakValues mine = peak_values(memory_, record.memory, counted);
  other_peaks_ = other_peaks(comm_.all_gather_values(mine), kMemoryTolerance);
}

void RunReport::evaluated(const StepRecord& record, double seconds) {
  if (!record.eval_loss || !record.eval_ppl) return;
  if (summary_) summary_->add_evaluation(seconds);
  const std::string step = "step " + std::to_string(record.step) + ": validation loss ";
  char figures[96];
  for (const auto& [name, loss] : record.eval_losses) {
    std::snprintf(figures, sizeof figures, "%.4f, perplexity %.2f", loss, std::exp(loss));
    say(step + "of " + name + " " + figures);
  }
  std::snprintf(figures, sizeof figures, "%.4f, perplexity %.2f (%.1f s)", *record.eval_loss,
                *record.eval_ppl, seconds);
  say(step + figures);
  note({.kind = "evaluation",
        .text = step + figures,
        .step = record.step,
        .more = {{"eval_loss", *record.eval_loss}, {"seconds", seconds}}});
}

void RunReport::write_snapshot(const StepRecord& record) {
  if (snapshot_timings_.empty()) return;
  std::vector<std::string> groups;
  for (const ParamGroup& group : engine_.spec().groups) groups.push_back(group.name);
  const MemorySnapshots::Result result = snapshots_.write({.program = engine_.train_program(),
                                                           .plan = memory_,
                                                           .group_names = groups,
                                                           .timings = snapshot_timings_,
                                                           .record = record});
  if (result.failure.empty()) {
    say("memory after step " + std::to_string(record.step) + ": " + result.path);
  } else {
    log_warning("output.memory_snapshot: " + result.failure + ". The run goes on without " +
                result.path);
  }
}

void RunReport::step_done(StepRecord& record, const CountedTiers& counted) {
  write_snapshot(record);
  if (!metrics_) return;
  const std::vector<std::string> compared = watch_.compare(record, counted);
  for (const std::string& line : compared) say(line);
  const OtherPeaks others = std::exchange(other_peaks_, {});
  for (const std::string& line : others.fullest) say(line);
  for (const std::string& line : others.off_plan) {
    say(line);
    note({.kind = "plan_error", .text = line, .step = record.step});
  }
  if (!compared.empty()) note_plan(record);
  if (record.skipped) {
    note({.kind = "skipped",
          .text = "step " + std::to_string(record.step) +
                  " made no update: its gradients overflowed at a loss scale of " +
                  std::to_string(static_cast<std::int64_t>(record.loss_scale)),
          .step = record.step});
  }
  metrics_->write(record);
  if (events_) events_->write(record);
  if (summary_) summary_->add(record);
  if (mlflow_) mlflow_->write(record);
  eta_.add(record.step_ms);
  if (!record.skipped) trend_.add(record.loss);
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
                    .skipped = record.skipped,
                    .trend = trend_.trend()});
  if (!timers_line_.empty()) progress_.print(timers_line_);
}

bool RunReport::count_save(const std::function<bool()>& save) {
  const auto begin = std::chrono::steady_clock::now();
  const bool saved = save();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (summary_) summary_->add_save(took.count());
  return saved;
}

void RunReport::summarize(const std::string& checkpoint, const std::string& next) {
  if (!summary_ || !log_shows(LogLevel::kInfo)) return;
  const std::string text = summary_->text({.steps = options_.engine.train.steps,
                                           .world = comm_.size(),
                                           .output_dir = options_.output_dir,
                                           .checkpoint = checkpoint,
                                           .heading = terminal_info(1).colors});
  std::fputs((text + next).c_str(), stdout);
  std::fflush(stdout);
}

void RunReport::step_begins(std::int64_t step) const {
  if (options_.events != nullptr) options_.events->set_step(step);
}

void RunReport::ended(const std::string& reason, std::int64_t step, MlflowStatus status) {
  note({.kind = "end", .text = reason, .step = step});
  if (mlflow_) mlflow_->end(status);
}

void RunReport::note(RunEvent event) const {
  if (options_.events != nullptr) options_.events->add(std::move(event));
}

void RunReport::note_plan(const StepRecord& record) {
  try {
    if (const TimeReport* time = watch_.predicted()) {
      write_plan_trace(options_.output_dir + "/plan_trace.json", engine_.train_program(), *time);
    }
  } catch (const IoError& error) {
    log_warning(std::string(error.what()) + ". The run goes on without this file");
  }
  if (!record.plan_error) return;
  std::string beyond;
  const auto compare = [&beyond](const char* what, std::optional<double> error, double tolerance) {
    if (!error || std::abs(*error) <= tolerance) return;
    char text[64];
    std::snprintf(text, sizeof text, "%s%s %+.1f %%", beyond.empty() ? "" : ", ", what,
                  100 * *error);
    beyond += text;
  };
  compare("device peak", record.plan_error->device, kMemoryTolerance);
  compare("host peak", record.plan_error->host, kMemoryTolerance);
  compare("NVMe", record.plan_error->nvme, kMemoryTolerance);
  compare("step time", record.plan_error->step_ms, kStepTimeTolerance);
  if (beyond.empty()) return;
  note({.kind = "plan_error", .text = "measured over planned: " + beyond, .step = record.step});
}

void RunReport::write_trace() {
  if (!options_.trace || comm_.rank() != 0) return;
  engine_.read_device_times(traced_, traced_exchanges_);
  write_step_trace(options_.output_dir + "/trace.json", engine_.train_program(), traced_,
                   watch_.predicted(), traced_exchanges_);
}

}  // namespace sluice
