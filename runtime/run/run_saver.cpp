#include "runtime/run/run_saver.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/run/run_settings.hpp"
#include "runtime/run/save/missing_moments.hpp"
#include "runtime/run/save/moved_checkpoints.hpp"
#include "runtime/run/saved_tokenizer.hpp"

namespace sluice {
namespace {

constexpr double kUnknownDiskBytesPerSecond = 200e6;  // assumed before the first save

SaveClockOptions clock_options(const SavingOptions& saving, const RunSaverContext& context,
                               const Engine& engine) {
  SaveClockOptions options;
  if (saving.on) {
    options.every_seconds = saving.checkpoint.every.seconds;
    options.time_limit_seconds = saving.checkpoint.time_limit_seconds;
    constexpr double kBytesOfAParameter = 12;
    options.first_save_estimate_seconds = kBytesOfAParameter *
                                          static_cast<double>(whole_param_count(engine.spec())) /
                                          kUnknownDiskBytesPerSecond;
  }
  if (!context.output_dir.empty()) {
    options.request_file = join_path(context.output_dir, "save-now");
  }
  return options;
}

constexpr const char* kGoesOn = "; --resume auto goes on";

// `signals`: by rank; 0: none. A launcher signals all ranks.
std::string stop_text(const std::vector<int>& signals, bool limit, std::int64_t step) {
  const std::string after = " after step " + std::to_string(step);
  std::string some;
  for (std::size_t rank = 0; rank < signals.size(); ++rank) {
    if (signals[rank] == 0) continue;
    some += (some.empty() ? ": rank " : ", rank ") + std::to_string(rank) + " received " +
            (signals[rank] == SIGINT ? "SIGINT" : "SIGTERM");
  }
  if (some.empty() && limit) return "stopped by checkpoint.time_limit" + after;
  const bool all = std::find(signals.begin(), signals.end(), 0) == signals.end();
  return all || some.empty() ? "stopped by request" + after : "stopped" + after + some;
}

constexpr const char* kBeforeMoments = "before_moments";  // key in RunState::more, unless 0

std::int64_t before_moments_of(const RunState& run) {
  const auto found = run.more.find(kBeforeMoments);
  if (found == run.more.end()) return 0;
  const std::string& text = found->second;
  std::int64_t updates = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), updates);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && updates >= 0 && updates <= run.updates) return updates;
  throw IoError("the checkpoint's run.more." + std::string(kBeforeMoments) + " is '" + text +
                    "', no number of its " + std::to_string(run.updates) + " updates",
                "");
}

void drop_text(TokenizerRecord& tokenizer) {
  for (TokenizerFile& file : tokenizer.files) file.text.reset();
}

RunProgress progress_of(const RunState& run) {
  return {.step = run.step,
          .updates = run.updates,
          .before_moments = before_moments_of(run),
          .loss_scale = {.scale = run.loss_scale,
                         .good_steps = run.loss_scale_good_steps,
                         .lives = static_cast<int>(run.loss_scale_lives)},
          .learning_rate = run.learning_rate};
}

}  // namespace

std::optional<std::int64_t> room_for_saving(const MemoryPlan& memory) {
  const TierPlan& host = memory.of(Tier::kHost);
  return host.budget == 0 ? std::nullopt : std::optional(host.budget - host.peak);
}

RunSaver::RunSaver(SavingOptions options, RunSaverContext context, Engine& engine,
                   Communicator& comm, Watchdog& watchdog)
    : options_(std::move(options)),
      context_(std::move(context)),
      engine_(engine),
      comm_(comm),
      watchdog_(watchdog),
      settings_(settings_of(context_.engine_options, context_.global_batch)),
      clock_(clock_options(options_, context_, engine), options_.started) {
  settings_[kDataKey] = context_.data.fingerprint();
  const Tokenizer* const tokenizer = context_.data.tokenizer();
  if (tokenizer != nullptr && !options_.tokenizer.empty()) {
    tokenizer_ = tokenizer_record(*tokenizer, options_.tokenizer, options_.end_tokens);
    if (options_.chat_template) {
      add_chat_template(*tokenizer, options_.tokenizer, *options_.chat_template, tokenizer_);
    }
  }
  if (comm_.rank() != 0) drop_text(tokenizer_);
  if (options_.on) say(saves().describe());
}

Checkpointing& RunSaver::saves() {
  if (!saves_) {
    CheckpointingOptions options{.checkpoint = options_.checkpoint,
                                 .room_bytes = context_.room_bytes,
                                 .local_ranks = context_.local_ranks,
                                 .events = context_.events};
    saves_ = std::make_unique<Checkpointing>(
        std::move(options), engine_, comm_, local_file_system(),
        [this](const std::string& phase, bool waiting) {
          watchdog_.set_phase(phase, waiting ? Waiting::kYes : Waiting::kNo);
        });
  }
  return *saves_;
}

void RunSaver::say(const std::string& line) const {
  if (comm_.rank() == 0) log_info(line);
}

void RunSaver::note_resume(const RunState& run, const std::string& from) const {
  const std::string text =
      "resumed from " + from + ": going on with step " + std::to_string(run.step + 1);
  if (context_.events != nullptr) {
    context_.events->add({.kind = "resume", .text = text, .step = run.step});
  }
  say(text);
}

RunProgress RunSaver::resume_from_image(const ImageVersion& taken) {
  const RunState run = parse_manifest(taken.state, "the image in offload.nvme_path").run;
  const std::string image = "the image in offload.nvme_path";
  const ResumeRequest request{.settings = settings_, .tokenizer = tokenizer_.fingerprint};
  check_same_run(request, run, image);
  check_same_optimizer(request, run, image);
  first_step_ = run.step;
  first_samples_ = run.samples;
  if (run.step >= context_.engine_options.train.steps) {
    say(finished_text(image, run.step, context_.engine_options.train.steps));
    return progress_of(run);
  }
  note_resume(run, image);
  report_changes(run);
  inherit(run, std::nullopt);
  return progress_of(run);
}

void RunSaver::inherit(const RunState& run, const std::optional<std::string>& checkpoint) {
  FileSystem& files = local_file_system();
  if (options_.chat_template) {
    // The files of `tokenizer_` hold the template that this run trains on.
    if (tokenizer_.end_tokens.empty()) tokenizer_.end_tokens = run.tokenizer.end_tokens;
  } else if (checkpoint) {
    inherit_tokenizer(tokenizer_, run.tokenizer, files, *checkpoint);
  } else if (comm_.rank() == 0) {  // which alone writes the files
    const std::string error =
        inherit_from_image(tokenizer_, run.tokenizer, files, options_.checkpoint.dir);
    if (!error.empty()) log_warning("checkpoints will lack files of the tokenizer: " + error);
  }
  if (comm_.rank() != 0) drop_text(tokenizer_);
}

void RunSaver::note(const RunProgress& progress) {
  if (!engine_.keeps_image()) return;
  Manifest manifest;
  manifest.run = state_of(progress);
  manifest.step = progress.step;
  std::string text = encode_manifest(manifest);
  if (std::ssize(text) > kImageStateBytes) {
    manifest.run.config.clear();  // only for people; checkpoints keep the configuration
    text = encode_manifest(manifest);
  }
  engine_.set_image_state(std::move(text));
}

std::optional<RunProgress> RunSaver::resume() {
  if (options_.resume != "never") watchdog_.set_phase("resuming");
  if (const auto& image = engine_.image()) return resume_from_image(*image);
  const ResumeRequest request{.from = options_.resume,
                              .dir = options_.checkpoint.dir,
                              .room_bytes = context_.room_bytes,
                              .settings = settings_,
                              .tokenizer = tokenizer_.fingerprint};
  const std::int64_t steps = context_.engine_options.train.steps;
  const Resumed resumed = resume_run(request, steps, engine_, comm_, local_file_system(),
                                     [this] { watchdog_.pulse(); });
  if (!resumed.run) {
    if (options_.resume == "auto" && comm_.rank() == 0) note_fresh_start();
    engine_.make_first_weights();
    engine_.frozen_rounding().warn(comm_, "model.from " + engine_.spec().options.from);
    return std::nullopt;
  }
  const RunState& run = *resumed.run;
  first_step_ = run.step;
  first_samples_ = run.samples;
  RunProgress progress = progress_of(run);
  if (run.step >= steps) {
    say(finished_text(resumed.path, run.step, steps));
    return progress;
  }
  note_resume(run, resumed.path);
  if (resumed.moments.held == 0) progress.before_moments = progress.updates;
  if (comm_.rank() == 0) warn_of_missing(resumed.moments, context_.engine_options.optimizer);
  report_changes(run);
  inherit(run, resumed.path);
  engine_.frozen_rounding().warn(comm_, resumed.path);
  if (saves_) saves_->set_known_bad(resumed.known_bad);
  return progress;
}

void RunSaver::note_fresh_start() const {
  const std::string& dir = options_.checkpoint.dir;
  const std::string text = "--resume auto: no checkpoint in " + dir + ", starting anew";
  const std::string moved = newest_moved_checkpoint(local_file_system(), dir);
  if (moved.empty()) return log_info(text);
  log_warning(text + "; " + moved + " of an earlier run was moved aside: to go on from it, stop " +
              "this run and give --resume " + moved);
}

void RunSaver::report_changes(const RunState& saved) const {
  if (comm_.rank() != 0) return;
  const std::vector<std::string> changes = changes_between(saved, settings_);
  if (changes.empty()) return;
  log_warning(
      "settings differ from the checkpoint's; an uninterrupted run would give other losses:");
  for (const std::string& change : changes) log_warning("  changed: " + change);
}

double RunSaver::vote() {
  SaveVote mine = SaveVote::kNone;
  if (comm_.rank() == 0) mine = clock_.vote(SaveClock::Clock::now());
  if (mine == SaveVote::kSave && !options_.on && !may_save_on_request()) mine = SaveVote::kNone;
  if (stop_requested()) mine = SaveVote::kStop;
  return static_cast<double>(mine);
}

// A run that saves by itself checked its directory before the start.
bool RunSaver::may_save_on_request() {
  if (saves_) return true;
  const std::string& dir = options_.checkpoint.dir;
  std::string refused;
  try {
    const auto earlier =
        earlier_checkpoint(local_file_system(), {.from = options_.resume, .dir = dir});
    if (!earlier) return true;
    refused = dir + " holds " + *earlier + " of an earlier run";
  } catch (const Error& error) {
    refused = error.what();
  }
  log_warning("save-now: nothing is saved: " + refused +
              "; start the run with another output.dir, or with checkpoint.at_end: true");
  return false;
}

bool RunSaver::says_stop(double vote) { return vote >= static_cast<double>(SaveVote::kStop); }

std::string RunSaver::why_stopped(std::int64_t step) const {
  const std::array<double, 2> mine{static_cast<double>(stop_signal()),
                                   clock_.limit_reached() ? 1.0 : 0.0};
  const std::vector<double> all = comm_.all_gather_values(mine);
  std::vector<int> signals;  // by rank
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    signals.push_back(static_cast<int>(all[i]));
  }
  const bool limit = all[1] > 0;  // only rank 0 has the clock
  std::string text = stop_text(signals, limit, step);
  const std::string saved = saved_path();
  if (!saved.empty() && (options_.on || saves_->last_step() == step)) {
    return text + ", saved to " + saved + kGoesOn;
  }
  if (engine_.keeps_image()) return text + ", kept in offload.nvme_path" + kGoesOn;
  text += ", not saved (checkpoint.at_end: false)";
  return saved.empty() ? text : text + "; the newest checkpoint is " + saved + kGoesOn;
}

bool RunSaver::can_resume() const { return !saved_path().empty() || engine_.keeps_image(); }

std::string RunSaver::saved_path() const { return saves_ ? saves_->path() : ""; }

RunState RunSaver::state_of(const RunProgress& progress) const {
  const EngineOptions& options = context_.engine_options;
  RunState run;
  run.step = progress.step;
  run.updates = progress.updates;
  run.seed = options.train.seed;
  run.samples = samples_until(progress.step);
  run.tokens = run.samples * options.model.seq;
  run.learning_rate = progress.learning_rate;
  run.loss_scale = progress.loss_scale.scale;
  run.loss_scale_good_steps = progress.loss_scale.good_steps;
  run.loss_scale_lives = progress.loss_scale.lives;
  run.skipped_steps = progress.step - progress.updates;
  run.config = options_.config;
  run.layout.world = comm_.size();
  run.layout.data = options.dp;
  run.layout.tensor = options.part.tensor;
  run.layout.pipeline = options.part.stages;
  run.layout.virtual_stages = std::max(1, static_cast<int>(options.part.chunks.size()));
  run.layout.zero_stage = options.zero.stage;
  run.tokenizer = tokenizer_;
  run.more = settings_;
  if (progress.before_moments > 0) {
    run.more[kBeforeMoments] = std::to_string(progress.before_moments);
  }
  return run;
}

bool RunSaver::save(const RunProgress& progress, bool behind) {
  const PhaseScope phase(watchdog_, "saving a checkpoint");
  const bool saved = saves().save(state_of(progress), behind);
  stall_ms_ += saves().stall_ms();
  clock_.saved(SaveClock::Clock::now(), saves().save_seconds());
  return saved;
}

bool RunSaver::is_due(std::int64_t step) const {
  const std::int64_t every = options_.on ? options_.checkpoint.every.steps : 0;
  return every > 0 && step % every == 0;
}

void RunSaver::after_step(const RunProgress& progress, double vote, double step_seconds) {
  clock_.step_took(step_seconds);
  if (saves_) {
    saves_->look();
    clock_.save_took(saves_->save_seconds());
  }
  const bool asked = vote >= static_cast<double>(SaveVote::kSave);
  if (!says_stop(vote) && (is_due(progress.step) || asked)) {
    try {
      (void)save(progress, true);
    } catch (const BudgetError& error) {  // of a save-now without room; equal on every rank
      if (comm_.rank() == 0) log_warning(std::string("save-now: ") + error.what());
    }
  }
  clock_.expect(saves_ ? saves_->under_way_since() : std::nullopt, is_due(progress.step + 1));
}

bool RunSaver::finish(const RunProgress& progress, bool stopped) {
  if (!options_.on || !(options_.checkpoint.at_end || stopped)) {
    complete();
    return saves_ && saves_->last_step() == progress.step;
  }
  const PhaseScope phase(watchdog_, "saving a checkpoint");
  const bool has_it = saves().last_step() == progress.step && saves().finish();
  if (has_it || save(progress, false)) return true;
  throw IoError("the run's last checkpoint was not saved: " + saves().failure(),
                options_.checkpoint.dir);
}

void RunSaver::complete() {
  if (!saves_) return;
  const PhaseScope phase(watchdog_, "saving a checkpoint");
  (void)saves_->finish();
}

std::optional<double> RunSaver::take_stall_ms() {
  const double stall = std::exchange(stall_ms_, 0.0);
  return stall > 0 ? std::optional(stall) : std::nullopt;
}

}  // namespace sluice
