// Saving and resuming as the training loop sees it: when, what besides tensors, and what is said in
// the log. Calls are collective and come in the same order on every rank, vote() and the accessors
// apart. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_options.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/run/checkpointing.hpp"
#include "runtime/run/resume.hpp"
#include "runtime/run/save_clock.hpp"
#include "zero/loss_scaler.hpp"

namespace sluice {

struct SavingOptions {
  CheckpointOptions checkpoint;  // dir: filled in
  bool on = false;  // saves by itself: at the end, every so often, or before a time limit;
                    // false: only when output_dir/save-now appears
  std::string resume = "never";  // as ResumeRequest::from
  std::string config;            // the resolved configuration, kept in every checkpoint
  std::string tokenizer;         // data.tokenizer, which is kept there as well; empty: it is not
  std::vector<std::int32_t> end_tokens;  // of the model's own files, besides the tokenizer's
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

// Where a run stands after a step.
struct RunProgress {
  std::int64_t step = 0;
  std::int64_t updates = 0;  // steps that were not skipped
  // Of these, what was done before the moments began at zero: a run that was resumed from weights
  // alone has the schedule's count, and an Adam that counts from there.
  std::int64_t before_moments = 0;
  LossScaleState loss_scale;
  double learning_rate = 0;  // of the last step
};

struct RunSaverContext {
  const EngineOptions& engine_options;
  const TrainingData& data;
  std::string output_dir;
  std::int64_t global_batch = 0;
  std::optional<std::int64_t> room_bytes;  // as CheckpointingOptions
  int local_ranks = 1;
};

// Of memory.host, what the plan leaves on a rank; nullopt: no budget.
[[nodiscard]] std::optional<std::int64_t> room_for_saving(const MemoryPlan& memory);

class RunSaver {
 public:
  RunSaver(SavingOptions options, RunSaverContext context, Engine& engine, Communicator& comm,
           Watchdog& watchdog);

  // Restores what --resume asks for; nullopt: the run starts anew. Says in the log what happened.
  [[nodiscard]] std::optional<RunProgress> resume();

  // Where the run stands, for the image that the next step commits (offload.image): after every
  // step, and before the first.
  void note(const RunProgress& progress);

  // For the step that begins; the largest of the ranks' is what all do.
  [[nodiscard]] double vote();
  [[nodiscard]] static bool says_stop(double vote);
  // After finish(), where the run was asked to stop: "stopped by checkpoint.time_limit after step
  // 12, saved to ...". Collective.
  [[nodiscard]] std::string why_stopped(std::int64_t step) const;

  // At a step's end, before the last one.
  void after_step(const RunProgress& progress, double vote, double step_seconds);
  // After the last step. Throws IoError where its save fails. Returns whether this step was saved.
  [[nodiscard]] bool finish(const RunProgress& progress, bool stopped);
  // What is under way, before the run ends with an error.
  void complete();

  // How long the steps waited since this was last asked; nullopt: not at all.
  [[nodiscard]] std::optional<double> take_stall_ms();

 private:
  [[nodiscard]] RunProgress resume_from_image(const ImageVersion& taken);
  [[nodiscard]] Checkpointing& saves();
  [[nodiscard]] RunState state_of(const RunProgress& progress) const;
  [[nodiscard]] bool save(const RunProgress& progress, bool behind);
  [[nodiscard]] bool is_due(std::int64_t step) const;
  [[nodiscard]] bool may_save_on_request();
  void say(const std::string& line) const;
  void report_changes(const RunState& saved) const;

  const SavingOptions options_;
  const RunSaverContext context_;
  Engine& engine_;
  Communicator& comm_;
  Watchdog& watchdog_;
  TextMap settings_;
  TokenizerRecord tokenizer_;       // with its text on rank 0 alone
  std::int64_t first_step_ = 0;     // the run was resumed after it,
  std::int64_t first_samples_ = 0;  // with so many samples taken
  std::unique_ptr<Checkpointing> saves_;
  SaveClock clock_;
  double stall_ms_ = 0;
};

}  // namespace sluice
