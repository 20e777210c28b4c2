#include "runtime/run/checkpointing.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/run/memory_left.hpp"
#include "runtime/run/state_io.hpp"

namespace sluice {
namespace {

// The caller's buffer, the engine's, the writer's, and one to narrow moments in.
constexpr std::int64_t kStagingParts = 4;
constexpr std::int64_t kSmallestPart = std::int64_t{64} << 10;
constexpr double kShareOfFreeMemory = 0.8;
constexpr std::chrono::seconds kBetweenMeetings{1};

std::int64_t part_bytes(const std::optional<std::int64_t>& room) {
  constexpr std::int64_t kLargestPart = kSaveStagingBytes / kStagingParts;
  if (!room) return kLargestPart;
  const std::int64_t part =
      std::min(kLargestPart, *room / kStagingParts / kSmallestPart * kSmallestPart);
  if (part > 0) return part;
  throw BudgetError(
      "memory.host: saving needs " + format_bytes(kStagingParts * kSmallestPart) +
      " a rank, and the plan leaves " + format_bytes(std::max<std::int64_t>(0, *room)) +
      "; give memory.host more, or do without checkpoints: checkpoint.at_end: false, and "
      "neither checkpoint.every nor time_limit");
}

// Ranks of a pipeline have plans, and so room, of their own: one that threw alone would leave the
// others in their first exchange.
std::int64_t agreed_part_bytes(const std::optional<std::int64_t>& room, Communicator& comm) {
  std::int64_t part = 0;
  std::string problem;
  try {
    part = part_bytes(room);
  } catch (const BudgetError& error) {
    problem = error.what();
  }
  problem = first_errors(exchange_text(comm, problem));
  if (!problem.empty()) throw BudgetError(problem);
  return part;
}

// On a thread of its own. That none can be started is a failure of the save, not of the run.
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

// A pool of budget 0 has none: room is not 0 where there is one (part_bytes).
std::int64_t budget_of(const std::optional<std::int64_t>& room) { return room.value_or(0); }

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  const char* format = seconds < 0.1 ? "%.1f ms" : seconds < 10 ? "%.2f s" : "%.0f s";
  std::snprintf(text.data(), text.size(), format, seconds < 0.1 ? 1e3 * seconds : seconds);
  return text.data();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void check_saving_room(const std::optional<std::int64_t>& room_bytes) {
  (void)part_bytes(room_bytes);
}

Checkpointing::Checkpointing(CheckpointingOptions options, Engine& engine, Communicator& world,
                             FileSystem& files, PhaseObserver alive)
    : options_(std::move(options)),
      engine_(engine),
      comm_(world),
      files_(files),
      alive_(std::move(alive)),
      pieces_(engine.saved_pieces()),
      part_bytes_(agreed_part_bytes(options_.room_bytes, world)),
      pool_(budget_of(options_.room_bytes)) {
  const std::array<double, 1> mine{static_cast<double>(bytes_of(pieces_))};
  for (const double bytes : comm_.all_gather_values(mine)) {
    all_bytes_ += static_cast<std::int64_t>(bytes);
  }
}

// The future of a thread waits for it. What is still being written then, of a run that ends with an
// error, no rank will complete: the error is not to be told minutes late for it.
Checkpointing::~Checkpointing() { ending_ = true; }

std::string Checkpointing::describe() const {
  const CheckpointOptions& asked = options_.checkpoint;
  std::string text = "checkpoints of " + format_bytes(all_bytes_) + " to " + asked.dir + ": ";
  if (asked.every.steps > 0) text += "every " + std::to_string(asked.every.steps) + " steps, ";
  if (asked.every.seconds > 0) text += "every " + seconds_text(asked.every.seconds) + ", ";
  if (asked.every == SaveInterval{}) text += "at the end, ";
  text += asked.keep == 0 ? "all kept" : std::to_string(asked.keep) + " kept";
  if (!asked.async) return text + ", written while the steps wait";
  const std::string copy = format_bytes(bytes_of(pieces_));
  switch (why_not_behind()) {
    case WhyNot::kOnNvme:
      return text + ", written while the steps wait: the states are on NVMe";
    case WhyNot::kNoRoom:
      return text + ", written while the steps wait: memory.host has no room for a copy of " +
             copy + " a rank";
    case WhyNot::kNone:
      break;
  }
  return text + ", written behind the steps from a copy of " + copy + " a rank";
}

Checkpointing::WhyNot Checkpointing::why_not_behind() const {
  if (engine_.plan().shape.placement.optimizer == Tier::kNvme) return WhyNot::kOnNvme;
  const std::int64_t needed = bytes_of(pieces_) + kStagingParts * part_bytes_;
  return options_.room_bytes && needed > *options_.room_bytes ? WhyNot::kNoRoom : WhyNot::kNone;
}

// Kept for the saves to come, once it is there. The same answer on every rank.
bool Checkpointing::take_snapshot_memory() {
  const std::int64_t bytes = bytes_of(pieces_);
  bool mine = why_not_behind() == WhyNot::kNone;
  if (mine && snapshot_.bytes() == 0) {
    const double free = kShareOfFreeMemory * static_cast<double>(memory_left_bytes());
    mine = static_cast<double>(bytes) * options_.local_ranks <= free;
    try {
      if (mine) snapshot_ = pool_.allocate("checkpoint", std::max<std::int64_t>(1, bytes));
    } catch (const BudgetError&) {
      mine = false;
    }
  }
  const bool all = on_all_ranks(comm_, mine);
  if (!all && !said_no_room_ && why_not_behind() == WhyNot::kNone && comm_.rank() == 0) {
    said_no_room_ = true;
    log_warning("checkpoint.async: a host has no free memory for a copy of " + format_bytes(bytes) +
                " a rank; the steps wait while a checkpoint is written");
  }
  if (!all) snapshot_.reset();
  return all;
}

bool Checkpointing::save(const RunState& run, bool behind) {
  const Clock::time_point entered = Clock::now();  // the steps wait for the save before this too
  (void)finish();
  began_ = Clock::now();
  run_ = run;
  moved_ = 0;
  engine_.settle();
  behind_ = behind && options_.checkpoint.async && take_snapshot_memory();
  alive_("saving a checkpoint: making its directory", true);  // and removing what a crash left
  const std::string problem = begin();
  if (!problem.empty()) {
    conclude(problem);
    stall_ms_ = 1e3 * seconds_since(entered);
    return false;
  }
  last_step_ = run.step;
  phase_ = Phase::kWriting;
  alive_("saving a checkpoint: writing", false);
  if (!behind_) {
    write_now();
    const bool saved = finish();
    stall_ms_ = 1e3 * seconds_since(entered);
    return saved;
  }
  write_behind();
  stall_ms_ = 1e3 * seconds_since(entered);
  if (comm_.rank() == 0) {
    log_info("checkpoint of step " + std::to_string(run.step) + ": the steps waited " +
             seconds_text(1e-3 * stall_ms_) + "; " + format_bytes(all_bytes_) +
             " are written behind them");
  }
  return true;
}

// All take their staging; rank 0 makes the directory and tells the others. Returns what went wrong
// on any rank, on every rank: one that went on alone would wait for the others' collectives.
std::string Checkpointing::begin() {
  std::string target;
  std::string error;
  try {
    staging_ = pool_.allocate("checkpoint_staging", part_bytes_);
    others_staging_ = pool_.reserve("checkpoint_staging", (kStagingParts - 1) * part_bytes_);
    if (comm_.rank() == 0) {
      target = encode_target(begin_save(files_, options_.checkpoint.dir, run_.step));
    }
  } catch (const std::exception& failure) {
    error = error_chain(failure);
  }
  std::string problem = first_errors(exchange_text(comm_, error));
  if (!problem.empty()) {
    if (!target.empty()) abandon_save(files_, decode_target(target));
    return problem;
  }
  target_ = decode_target(exchange_text(comm_, target).front());
  // A bad one that was purged gives its name free: the one that gets it now is not bad.
  std::erase(known_bad_, target_.name);
  return "";
}

std::unique_ptr<RankWriter> Checkpointing::make_writer() {
  RankWriterOptions options;
  options.staging_bytes = part_bytes_;
  return std::make_unique<RankWriter>(files_, target_, comm_.rank(), ranges_of(pieces_), options);
}

// The engine is read on its own thread; the sync, which may take long, is left to another.
void Checkpointing::write_now() {
  const auto floats = static_cast<std::size_t>(part_bytes_) / sizeof(float);
  Clock::time_point met = Clock::now();
  try {
    std::shared_ptr<RankWriter> writer = make_writer();
    write_states(engine_, pieces_, *writer, {reinterpret_cast<float*>(staging_.data()), floats},
                 [&](std::int64_t bytes) {
                   moved_ = bytes;
                   if (Clock::now() - met < kBetweenMeetings) return;
                   (void)meet(false);
                   tell_alive(false);
                   met = Clock::now();
                 });
    part_ = start_thread([writer] { return writer->seal(); });
  } catch (const std::exception&) {  // a broken meeting too: the next one throws it again
    std::promise<std::string> failed;
    failed.set_exception(std::current_exception());
    part_ = failed.get_future();
  }
}

void Checkpointing::write_behind() {
  const auto floats = static_cast<std::size_t>(part_bytes_) / sizeof(float);
  const std::span<std::byte> snapshot(snapshot_.data(),
                                      static_cast<std::size_t>(bytes_of(pieces_)));
  copy_states(engine_, pieces_, snapshot, {reinterpret_cast<float*>(staging_.data()), floats});
  part_ = start_thread([this, snapshot] {
    const std::unique_ptr<RankWriter> writer = make_writer();
    write_snapshot(pieces_, snapshot, *writer, [this](std::int64_t bytes) {
      moved_ = bytes;
      if (ending_) throw Error("the run has ended");
    });
    return writer->seal();
  });
}

bool Checkpointing::own_part_is_done(std::chrono::milliseconds wait) const {
  return !part_.valid() || part_.wait_for(wait) == std::future_status::ready;
}

// Collective. True once all ranks have said `ready`.
bool Checkpointing::meet(bool ready) {
  const std::array<double, 2> mine{ready ? 1.0 : 0.0, static_cast<double>(moved_.load())};
  const std::vector<double> all = comm_.all_gather_values(mine);
  bool all_ready = true;
  double moved = 0;
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    all_ready = all_ready && all[i] > 0;
    moved += all[i + 1];
  }
  some_rank_moved_ = std::exchange(moved_by_all_, moved) != moved;
  return all_ready;
}

// A disk that takes long is alive as long as bytes move anywhere. While a file is synced, or the
// checkpoint completed and old ones removed, none do, and none need to for long.
void Checkpointing::tell_alive(bool ready) {
  const bool has_written = moved_ >= bytes_of(pieces_);
  const char* doing = "saving a checkpoint: writing";
  if (ready) {
    doing = "saving a checkpoint: waiting for the other ranks";
  } else if (phase_ == Phase::kCommitting) {
    doing = "saving a checkpoint: completing it and removing old ones";
  } else if (has_written) {
    doing = "saving a checkpoint: syncing the file";
  }
  if (!some_rank_moved_ && told_ == doing) return;
  told_ = doing;
  alive_(told_, ready || has_written);
}

void Checkpointing::look() {
  if (phase_ != Phase::kIdle && meet(own_part_is_done({}))) advance();
}

bool Checkpointing::finish() {
  told_.clear();
  while (phase_ != Phase::kIdle) {
    const bool ready = own_part_is_done(kBetweenMeetings);
    tell_alive(ready);
    if (meet(ready)) advance();
  }
  return std::exchange(succeeded_, true);
}

// All ranks have done what the phase asks of them.
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
    abandon_save(files_, target_);  // a disk that is full must not stay so; a complete one stays
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
    if (comm_.rank() == 0) abandon_save(files_, target_);
    conclude(problem);
    return;
  }
  std::vector<std::string> records = exchange_text(comm_, record);
  phase_ = Phase::kCommitting;
  if (comm_.rank() != 0) return;
  part_ = start_thread([this, records = std::move(records)] {
    commit(files_, target_, records, run_);
    ++moved_;
    remove_old();
    return std::string();
  });
}

// What was saved is complete: old ones that cannot be removed are no failure of the save.
void Checkpointing::remove_old() noexcept {
  try {
    PurgeOptions options;
    options.keep = options_.checkpoint.keep;
    options.known_bad = known_bad_;
    (void)purge(files_, options_.checkpoint.dir, options);
  } catch (const std::exception& failure) {
    log_warning("checkpoints older than " + target_.name +
                " could not be removed: " + error_chain(failure));
  }
}

void Checkpointing::conclude(const std::string& error) {
  phase_ = Phase::kIdle;
  staging_.reset();
  others_staging_.reset();
  failure_ = error;
  succeeded_ = error.empty();
  if (succeeded_) save_seconds_ = seconds_since(began_);
  if (!succeeded_) last_step_ = -1;
  if (comm_.rank() != 0) return;
  const std::string step = "checkpoint of step " + std::to_string(run_.step);
  if (!succeeded_) {
    log_warning(step + " was not saved, the run goes on: " + error);
    return;
  }
  log_info(step + ": " + target_.path() + " is complete, " + format_bytes(all_bytes_) + " in " +
           seconds_text(save_seconds_) + (behind_ ? ", behind the steps" : ""));
}

}  // namespace sluice
