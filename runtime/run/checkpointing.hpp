// A run's saves. Every rank has one and makes the same calls at the same steps; between them the
// ranks agree on what became of a save, so that it is complete on all of them or on none.
//
//   idle -save()-> writing -all ranks have written-> committing (rank 0) -done-> idle
//
// Writing happens at once, or on a thread of its own from a copy of this rank's share (async), the
// steps going on beside it; look(), at each step's end, moves it on. A save that fails is reported
// and abandoned, and the run goes on.
//
// Where a save is waited for, the ranks meet each second, so that none gives up on one whose disk
// takes long.
//
// SaveMemory has the memory of a save, SaveMeeting the meetings; here is the state machine.
//
// Public calls are collective; not thread-safe. The destructor gives up what is being written: of a
// run that goes well finish() comes before it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/checkpoint/checkpoint_options.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/state_pieces.hpp"
#include "runtime/run/save/save_meeting.hpp"
#include "runtime/run/save/save_memory.hpp"

namespace sluice {

struct CheckpointingOptions {
  CheckpointOptions checkpoint = {};  // dir is not empty
  // Of memory.host, what the plan leaves for saving on this rank; nullopt: no budget was given.
  std::optional<std::int64_t> room_bytes = {};
  int local_ranks = 1;  // that share this host's memory
};

class Checkpointing {
 public:
  // `alive` is called while a save is waited for: what this rank does, and whether it may be silent
  // for longer (a sync, a commit, other ranks'), each time that changes or some rank has moved on.
  // Throws as check_saving_room, on all ranks where one has no room.
  Checkpointing(CheckpointingOptions options, Engine& engine, Communicator& world,
                FileSystem& files, PhaseObserver alive);
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // "every 500 steps, to runs/x/checkpoints, ...": for the log at the start.
  [[nodiscard]] std::string describe() const;

  // Waits for a save that is under way, then saves; `behind`: beside the next steps, where
  // checkpoint.async is on and there is room for a copy. False where a save at once failed.
  bool save(const RunState& run, bool behind);
  // At each step's end.
  void look();
  // Until nothing is under way. False where what was failed.
  bool finish();
  // Why the last save failed, as every rank was told; empty: it did not.
  [[nodiscard]] const std::string& failure() const { return failure_; }

  // Of the newest save that began; empty: none did.
  [[nodiscard]] std::string path() const {
    return newest_.target.name.empty() ? "" : newest_.target.path();
  }

  // Names of checkpoints that could not be read: they do not count among those that are kept.
  void set_known_bad(std::vector<std::string> names) { known_bad_ = std::move(names); }
  // The step of the newest save that began and has not failed; -1: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }
  // When the save that is under way began; nullopt: none is.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> under_way_since() const {
    return phase_ == Phase::kIdle ? std::nullopt : std::optional(newest_.began);
  }
  // How long the last save kept the steps waiting (for the one before it, too), and how long the
  // last that succeeded took; 0: none did.
  [[nodiscard]] double stall_ms() const { return stall_ms_; }
  [[nodiscard]] double save_seconds() const { return save_seconds_; }
  [[nodiscard]] std::int64_t host_bytes() const { return memory_.used_bytes(); }

 private:
  enum class Phase { kIdle, kWriting, kCommitting };
  using Clock = std::chrono::steady_clock;
  struct Save {
    RunState run;
    SaveTarget target;
    Clock::time_point began;
    bool behind = false;
  };

  [[nodiscard]] std::string begin();
  void write_now();
  void write_behind();
  void advance();
  void all_have_written();
  void conclude(const std::string& error);

  const CheckpointingOptions options_;
  Engine& engine_;
  Communicator& comm_;  // of all ranks
  FileSystem& files_;
  const std::vector<StatePiece> pieces_;
  SaveMemory memory_;
  SaveMeeting meeting_;
  std::int64_t all_bytes_ = 0;  // of all ranks' pieces

  Phase phase_ = Phase::kIdle;
  Save newest_;  // under way, unless the phase is idle
  bool succeeded_ = true;
  std::string failure_;
  std::vector<std::string> known_bad_;
  std::int64_t last_step_ = -1;
  double stall_ms_ = 0;
  double save_seconds_ = 0;

  // Last: the thread of part_ uses the others.
  std::atomic<bool> ending_{false};
  std::future<std::string> part_;  // what this rank has to do: write its file, then (rank 0) commit
};

}  // namespace sluice
