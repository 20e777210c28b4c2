// Saving and resuming for the training loop: the times of saves, the state besides tensors, and the
// log lines. Calls are collective, except vote(), note() and the accessors, and come in the same
// order on every rank. Not thread-safe.
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
  bool on = false;               // saves at the end, at intervals, or before a time limit;
                                 // false: only when output_dir/save-now appears
  std::string resume = "never";  // as ResumeRequest::from
  std::string config;            // the resolved configuration, kept in every checkpoint
  std::string tokenizer;         // data.tokenizer, kept in every checkpoint; empty: not kept
  std::optional<std::string> chat_template;  // data.chat_template of a run on conversations
  std::vector<std::int32_t> end_tokens;      // of the model's own files, besides the tokenizer's
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

// Progress of a run after a step.
struct RunProgress {
  std::int64_t step = 0;
  std::int64_t updates = 0;  // steps that were not skipped
  // Updates made before the moments started from zero. A run resumed from weights alone keeps the
  // schedule's count, but Adam counts from the resume.
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
  RunEvents* events = nullptr;  // of rank 0; null: none
};

// Bytes of memory.host that the plan leaves on a rank; nullopt: no budget.
[[nodiscard]] std::optional<std::int64_t> room_for_saving(const MemoryPlan& memory);

class RunSaver {
 public:
  RunSaver(SavingOptions options, RunSaverContext context, Engine& engine, Communicator& comm,
           Watchdog& watchdog);

  // Restores the source that --resume names and logs the result. nullopt: the run starts anew, and
  // the engine has its first weights. The states of a finished run are not restored.
  [[nodiscard]] std::optional<RunProgress> resume();

  // Gives the engine the run's progress for the image that the next step commits (offload.image).
  // Called after every step, and before the first.
  void note(const RunProgress& progress);

  // This rank's vote for the step that begins. The largest vote of all ranks wins.
  [[nodiscard]] double vote();
  [[nodiscard]] static bool says_stop(double vote);
  // Called after finish() if the run was asked to stop. Returns "stopped by checkpoint.time_limit
  // after step 12, saved to ...".
  [[nodiscard]] std::string why_stopped(std::int64_t step) const;

  // Whether a stopped run goes on with --resume auto. Called after finish().
  [[nodiscard]] bool can_resume() const;
  // The newest checkpoint that this process completed; empty: none.
  [[nodiscard]] std::string saved_path() const;

  // Called at the end of each step except the last.
  void after_step(const RunProgress& progress, double vote, double step_seconds);
  // Called after the last step. Returns whether the step was saved. Throws IoError if the save
  // fails.
  [[nodiscard]] bool finish(const RunProgress& progress, bool stopped);
  // Completes a save under way before the run ends with an error.
  void complete();

  // Samples that the run has taken up to this step, over all ranks; a run that was resumed may have
  // had another global batch before.
  [[nodiscard]] std::int64_t samples_until(std::int64_t step) const {
    return first_samples_ + (step - first_step_) * context_.global_batch;
  }

  // How long steps waited for saves since the last call, in ms; nullopt: no wait.
  [[nodiscard]] std::optional<double> take_stall_ms();

 private:
  [[nodiscard]] RunProgress resume_from_image(const ImageVersion& taken);
  [[nodiscard]] Checkpointing& saves();
  [[nodiscard]] RunState state_of(const RunProgress& progress) const;
  [[nodiscard]] bool save(const RunProgress& progress, bool behind);
  [[nodiscard]] bool is_due(std::int64_t step) const;
  [[nodiscard]] bool may_save_on_request();
  void say(const std::string& line) const;
  // Takes the saved tokenizer, whose files lie in `checkpoint`; nullopt: `run` is of an image.
  void inherit(const RunState& run, const std::optional<std::string>& checkpoint);
  void note_fresh_start() const;
  void note_resume(const RunState& run, const std::string& from) const;
  void report_changes(const RunState& saved) const;

  const SavingOptions options_;
  const RunSaverContext context_;
  Engine& engine_;
  Communicator& comm_;
  Watchdog& watchdog_;
  TextMap settings_;
  TokenizerRecord tokenizer_;       // only rank 0 keeps the text
  std::int64_t first_step_ = 0;     // the run resumed after this step
  std::int64_t first_samples_ = 0;  // samples taken up to first_step_
  std::unique_ptr<Checkpointing> saves_;
  SaveClock clock_;
  double stall_ms_ = 0;
};

}  // namespace sluice
