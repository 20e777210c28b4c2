#include "runtime/run/checkpointing.hpp"

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/run/state_io.hpp"

namespace sluice {
namespace {

constexpr std::chrono::seconds kBetweenMeetings{1};

// Runs work on a new thread. Failure to start the thread fails the save, not the run.
template <class F>
std::future<std::string> start_thread(F&& work) {
  try {
    failpoint("checkpoint.thread");
    return std::async(std::launch::async, std::forward<F>(work));
  } catch (const std::exception&) {
    std::promise<std::string> failed;
    failed.set_exception(std::current_exception());
    return failed.get_future();
  }
}

bool is_done(const std::future<std::string>& part, std::chrono::milliseconds wait) {
  return !part.valid() || part.wait_for(wait) == std::future_status::ready;
}

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  const char* format = seconds < 0.1 ? "%.1f ms" : seconds < 10 ? "%.2f s" : "%.0f s";
  std::snprintf(text.data(), text.size(), format, seconds < 0.1 ? 1e3 * seconds : seconds);
  return text.data();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::unique_ptr<RankWriter> make_writer(FileSystem& files, const SaveTarget& target, int rank,
                                        const std::vector<StatePiece>& pieces,
                                        std::int64_t staging_bytes) {
  RankWriterOptions options;
  options.staging_bytes = staging_bytes;
  return std::make_unique<RankWriter>(files, target, rank, ranges_of(pieces), options);
}

// `newest` is complete, so a failed removal of old checkpoints does not fail its save.
void remove_old(FileSystem& files, const CheckpointOptions& asked, const SaveTarget& newest,
                const std::vector<std::string>& known_bad) noexcept {
  try {
    PurgeOptions options;
    options.keep = asked.keep;
    options.known_bad = known_bad;
    (void)purge(files, asked.dir, options);
  } catch (const std::exception& failure) {
    log_warning("checkpoints older than " + newest.name +
                " could not be removed: " + error_chain(failure));
  }
}

}  // namespace

Checkpointing::Checkpointing(CheckpointingOptions options, Engine& engine, Communicator& world,
                             FileSystem& files, PhaseObserver alive)
    : options_(std::move(options)),
      engine_(engine),
      comm_(world),
      files_(files),
      pieces_(engine.saved_pieces()),
      memory_({.room_bytes = options_.room_bytes,
               .local_ranks = options_.local_ranks,
               .copy_bytes = bytes_of(pieces_),
               .states_on_nvme = engine.plan().shape.placement.optimizer == Tier::kNvme},
              world),
      meeting_(world, std::move(alive), bytes_of(pieces_)) {
  const std::array<double, 1> mine{static_cast<double>(bytes_of(pieces_))};
  for (const double bytes : comm_.all_gather_values(mine)) {
    all_bytes_ += static_cast<std::int64_t>(bytes);
  }
}

// The destructor of the future waits for its thread. ending_ stops the write, so the error that
// ends the run is not reported minutes late. No rank would complete the save.
Checkpointing::~Checkpointing() { ending_ = true; }

std::string Checkpointing::describe() const {
  const CheckpointOptions& asked = options_.checkpoint;
  std::string text = "checkpoints of " + format_bytes(all_bytes_) + " to " + asked.dir + ": ";
  if (asked.every.steps > 0) text += "every " + counted(asked.every.steps, "step") + ", ";
  if (asked.every.seconds > 0) text += "every " + seconds_text(asked.every.seconds) + ", ";
  if (asked.every == SaveInterval{}) text += "at the end, ";
  text += asked.keep == 0 ? "all kept" : std::to_string(asked.keep) + " kept";
  if (!asked.async) return text + ", written while the steps wait";
  const std::string copy = format_bytes(memory_.copy_bytes());
  switch (memory_.why_no_copy()) {
    case SaveMemory::WhyNoCopy::kOnNvme:
      return text + ", written while the steps wait: the states are on NVMe";
    case SaveMemory::WhyNoCopy::kNoRoom:
      return text + ", written while the steps wait: memory.host has no room for a copy of " +
             copy + " a rank";
    case SaveMemory::WhyNoCopy::kNone:
      break;
  }
  return text + ", written behind the steps from a copy of " + copy + " a rank";
}

bool Checkpointing::save(const RunState& run, bool behind) {
  const Clock::time_point entered = Clock::now();  // steps also wait for the save before
  (void)finish();
  newest_.began = Clock::now();
  newest_.run = run;
  newest_.last = !behind;
  meeting_.set_moved(0);
  engine_.settle();
  newest_.behind = behind && options_.checkpoint.async && memory_.take_copy();
  // Makes the directory and removes the remains of a crash.
  meeting_.tell("saving a checkpoint: making its directory", true);
  const std::string problem = begin();
  if (!problem.empty()) {
    conclude(problem);
    times_.stall_ms = 1e3 * seconds_since(entered);
    return false;
  }
  last_step_ = run.step;
  phase_ = Phase::kWriting;
  meeting_.tell("saving a checkpoint: writing", false);
  note("save_begun", "a checkpoint is being written to " + newest_.target.path(), std::nullopt);
  if (!newest_.behind) {
    write_now();
    const bool saved = finish();
    times_.stall_ms = 1e3 * seconds_since(entered);
    return saved;
  }
  write_behind();
  times_.stall_ms = 1e3 * seconds_since(entered);
  if (comm_.rank() == 0) {
    log_info("checkpoint of step " + std::to_string(run.step) + ": the steps waited " +
             seconds_text(1e-3 * times_.stall_ms) + "; " + format_bytes(all_bytes_) +
             " are written behind them");
  }
  return true;
}

// All ranks take their staging; rank 0 makes the directory and tells the other ranks. Every rank
// returns any rank's failure, because a rank that continued alone would wait in a collective.
std::string Checkpointing::begin() {
  std::string target;
  std::string error;
  try {
    memory_.take_staging();
    if (comm_.rank() == 0) {
      target = encode_target(begin_save(files_, options_.checkpoint.dir, newest_.run.step));
    }
  } catch (const std::exception& failure) {
    error = error_chain(failure);
  }
  std::string problem = first_errors(exchange_text(comm_, error));
  if (!problem.empty()) {
    if (!target.empty()) abandon_save(files_, decode_target(target));
    return problem;
  }
  newest_.target = decode_target(exchange_text(comm_, target).front());
  // The new checkpoint may have the name of a damaged one that was purged.
  std::erase(known_bad_, newest_.target.name);
  return "";
}

// Reads the engine on the engine's thread. Another thread runs the sync, which may take long.
void Checkpointing::write_now() {
  Clock::time_point met = Clock::now();
  try {
    std::shared_ptr<RankWriter> writer =
        make_writer(files_, newest_.target, comm_.rank(), pieces_, memory_.part_bytes());
    write_states(engine_, pieces_, *writer, memory_.staging(), [&](std::int64_t bytes) {
      meeting_.set_moved(bytes);
      if (Clock::now() - met < kBetweenMeetings) return;
      (void)meeting_.meet(false);
      meeting_.tell_progress(false, false);
      met = Clock::now();
    });
    part_ = start_thread([writer] { return writer->seal(); });
  } catch (const std::exception&) {  // also a failed meeting: the next meeting throws again
    std::promise<std::string> failed;
    failed.set_exception(std::current_exception());
    part_ = failed.get_future();
  }
}

void Checkpointing::write_behind() {
  const std::span<std::byte> copy = memory_.copy();
  copy_states(engine_, pieces_, copy, memory_.staging());
  part_ = start_thread([this, copy] {
    const std::unique_ptr<RankWriter> writer =
        make_writer(files_, newest_.target, comm_.rank(), pieces_, memory_.part_bytes());
    write_snapshot(pieces_, copy, *writer, [this](std::int64_t bytes) {
      meeting_.set_moved(bytes);
      if (ending_) throw Error("the run has ended");
    });
    return writer->seal();
  });
}

void Checkpointing::look() {
  if (phase_ != Phase::kIdle && meeting_.meet(is_done(part_, {}))) advance();
}

bool Checkpointing::finish() {
  meeting_.forget_told();
  while (phase_ != Phase::kIdle) {
    const bool ready = is_done(part_, kBetweenMeetings);
    meeting_.tell_progress(ready, phase_ == Phase::kCommitting);
    if (meeting_.meet(ready)) advance();
  }
  return std::exchange(succeeded_, true);
}

// REQUIRES: all ranks have completed the phase.
void Checkpointing::advance() {
  if (phase_ == Phase::kWriting) {
    all_have_written();
    return;
  }
  std::string error;
  try {
    if (part_.valid()) part_.get();
  } catch (const std::exception& failure) {
    error = error_chain(failure);
    // Frees space on a full disk. A complete checkpoint stays.
    abandon_save(files_, newest_.target);
  }
  conclude(first_errors(exchange_text(comm_, error)));
}

void Checkpointing::all_have_written() {
  std::string record;
  std::string error;
  try {
    record = part_.get();
  } catch (const std::exception& failure) {
    error = error_chain(failure);
  }
  const std::string problem = first_errors(exchange_text(comm_, error));
  if (!problem.empty()) {
    if (comm_.rank() == 0) abandon_save(files_, newest_.target);
    conclude(problem);
    return;
  }
  std::vector<std::string> records = exchange_text(comm_, record);
  phase_ = Phase::kCommitting;
  if (comm_.rank() != 0) return;
  part_ = start_thread([this, records = std::move(records)] {
    commit(files_, newest_.target, records, newest_.run, options_.local_ranks);
    meeting_.add_moved();
    remove_old(files_, options_.checkpoint, newest_.target, known_bad_);
    return std::string();
  });
}

void Checkpointing::conclude(const std::string& error) {
  phase_ = Phase::kIdle;
  memory_.free_staging();
  failure_ = error;
  succeeded_ = error.empty();
  if (succeeded_) {
    times_.save_seconds = seconds_since(newest_.began);
    path_ = newest_.target.path();
  } else {
    last_step_ = -1;
  }
  if (comm_.rank() != 0) return;
  const std::string step = "checkpoint of step " + std::to_string(newest_.run.step);
  if (!succeeded_) {
    const std::string text =
        step + " was not saved" + (newest_.last ? ": " : ", the run goes on: ") + error;
    note("save_failed", text, std::nullopt);
    log_warning(text);
    return;
  }
  const std::string text = step + ": " + newest_.target.path() + " is complete, " +
                           format_bytes(all_bytes_) + " in " + seconds_text(times_.save_seconds) +
                           (newest_.behind ? ", behind the steps" : "");
  note("save", text, times_.save_seconds);
  log_info(text);
}

void Checkpointing::note(const char* kind, const std::string& text,
                         std::optional<double> seconds) const {
  if (options_.events == nullptr) return;
  RunEvent event{.kind = kind, .text = text, .step = newest_.run.step};
  if (seconds) {
    event.more = {{"bytes", all_bytes_}, {"seconds", *seconds}, {"path", newest_.target.path()}};
  }
  options_.events->add(std::move(event));
}

}  // namespace sluice
