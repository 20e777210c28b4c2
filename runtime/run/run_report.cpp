#include "runtime/run/run_report.hpp"

#include <cmath>
#include <cstdio>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "runtime/launch/error_report.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/run/step_meter.hpp"
#include "runtime/run/step_trace.hpp"
#include "runtime/run/trainer.hpp"

namespace sluice {
namespace {

ProgressOptions progress_options(const TrainerOptions& options) {
  const TerminalInfo terminal = terminal_info(1);
  return {.log_every = options.engine.train.log_every,
          .interactive = terminal.interactive,
          .columns = terminal.columns};
}

}  // namespace

RunReport::RunReport(const TrainerOptions& options, const Engine& engine, const MemoryPlan& memory,
                     const Communicator& comm, double gemm_rate)
    : options_(options),
      engine_(engine),
      memory_(memory),
      comm_(comm),
      watch_(engine.train_program(), engine.plan().shape, memory, options.rates, gemm_rate),
      progress_(progress_options(options)) {}

void RunReport::describe_run() const {
  const ModelSpec& spec = engine_.spec();
  const StepShape& shape = engine_.plan().shape;
  say("model: " + format_count(static_cast<double>(whole_param_count(spec))) + " parameters, " +
      std::to_string(spec.units.size()) + " units; " + std::to_string(comm_.size()) +
      " rank(s), ZeRO stage " + std::to_string(shape.stage) + ", " +
      std::string(name_of(shape.dtype)) + ", " + std::to_string(global_batch_of(options_.engine)) +
      " samples a step");
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const TierPlan& planned = memory_.of(tier);
    if (planned.peak == 0) continue;
    say("planned " + std::string(name_of(tier)) + " peak: " + format_bytes(planned.peak) +
        " a rank (" + describe_tags(planned) + ")");
  }
}

void RunReport::open(std::int64_t first) {
  if (comm_.rank() != 0) return;
  metrics_.emplace(options_.output_dir + "/metrics.jsonl", first);
  if (options_.tensorboard) {
    events_.emplace(options_.output_dir + "/tensorboard", host_name(), first);
  }
}

void RunReport::say(const std::string& line) const {
  if (comm_.rank() == 0) log_info(line);
}

void RunReport::warn(const std::string& line) {
  if (comm_.rank() != 0 || line.empty()) return;
  progress_.clear();
  log_warning(line);
}

void RunReport::keep_timings() {
  if (!options_.trace || !metrics_) return;
  traced_ = engine_.timings();
  traced_exchanges_ = engine_.exchanges();
}

void RunReport::evaluated(const StepRecord& record, double seconds) {
  if (!record.eval_loss || !record.eval_ppl) return;
  progress_.clear();
  const std::string step = "step " + std::to_string(record.step) + ": validation loss ";
  char figures[96];
  for (const auto& [name, loss] : record.eval_losses) {
    std::snprintf(figures, sizeof figures, "%.4f, perplexity %.2f", loss, std::exp(loss));
    say(step + "of " + name + " " + figures);
  }
  std::snprintf(figures, sizeof figures, "%.4f, perplexity %.2f (%.1f s)", *record.eval_loss,
                *record.eval_ppl, seconds);
  say(step + figures);
}

void RunReport::step_done(StepRecord& record, const CountedTiers& counted) {
  if (!metrics_) return;
  const std::vector<std::string> compared = watch_.compare(record, counted);
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

void RunReport::write_trace() {
  if (!options_.trace || comm_.rank() != 0) return;
  write_step_trace(options_.output_dir + "/trace.json", engine_.train_program(), traced_,
                   watch_.predicted(), traced_exchanges_);
}

}  // namespace sluice
