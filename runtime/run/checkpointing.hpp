// The saves of a run. Every rank has a Checkpointing and makes the same calls at the same steps.
// The ranks agree on the result of each save, so a save is complete on all ranks or on none.
//
//   idle -save()-> writing -all ranks have written-> committing (rank 0) -done-> idle
//
// A synchronous save writes at once. An asynchronous save writes a copy of this rank's states on
// another thread, beside the next steps; look(), at each step's end, advances the save. A failed
// save is reported and abandoned, and the run continues.
//
// While ranks wait for a save, they meet each second, so no rank times out on a slow disk.
//
// SaveMemory has the memory of a save, SaveMeeting the meetings, Checkpointing the state machine.
//
// Public calls are collective; not thread-safe. The destructor abandons an unfinished save. Call
// finish() first to complete the save.
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
#include "runtime/observe/run_events.hpp"
#include "runtime/run/save/save_meeting.hpp"
#include "runtime/run/save/save_memory.hpp"

namespace sluice {

struct CheckpointingOptions {
  CheckpointOptions checkpoint = {};  // dir is not empty
  // Bytes of memory.host that the plan leaves for saves of this rank; nullopt: no budget.
  std::optional<std::int64_t> room_bytes = {};
  int local_ranks = 1;          // ranks that share this host's memory
  RunEvents* events = nullptr;  // of rank 0; null: none
};

class Checkpointing {
 public:
  // `alive` is called while the rank waits for a save, at each change or progress of some rank. Its
  // arguments: what this rank does, and whether the rank may be silent for longer (a sync, a
  // commit, other ranks). Throws as check_saving_room, on all ranks if one rank has no room.
  Checkpointing(CheckpointingOptions options, Engine& engine, Communicator& world,
                FileSystem& files, PhaseObserver alive);
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // For the log at the start: "every 500 steps, to runs/x/checkpoints, ...".
  [[nodiscard]] std::string describe() const;

  // Waits for a save under way, then saves. `behind`: beside the next steps, if checkpoint.async is
  // on and memory for a copy is left; else no step follows the save. Returns false if a synchronous
  // save failed.
  bool save(const RunState& run, bool behind);
  // Called at each step's end.
  void look();
  // Waits for the save under way. Returns false if the save failed.
  bool finish();
  // Why the last save failed, equal on every rank; empty: the save did not fail.
  [[nodiscard]] const std::string& failure() const { return failure_; }

  // Path of the newest checkpoint that this run completed; empty: none yet.
  [[nodiscard]] const std::string& path() const { return path_; }

  // Names of unreadable checkpoints, which do not count towards checkpoint.keep.
  void set_known_bad(std::vector<std::string> names) { known_bad_ = std::move(names); }
  // The step of the last save; -1: no save has begun, or the last save failed.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }
  // When the save that is under way began; nullopt: none is.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> under_way_since() const {
    return phase_ == Phase::kIdle ? std::nullopt : std::optional(newest_.began);
  }
  // How long steps waited for the last save, with the wait for the save before it; and how long the
  // last successful save took. 0: none.
  [[nodiscard]] double stall_ms() const { return times_.stall_ms; }
  [[nodiscard]] double save_seconds() const { return times_.save_seconds; }
  [[nodiscard]] std::int64_t host_bytes() const { return memory_.used_bytes(); }

 private:
  enum class Phase { kIdle, kWriting, kCommitting };
  using Clock = std::chrono::steady_clock;
  struct Save {
    RunState run;
    SaveTarget target;
    Clock::time_point began;
    bool behind = false;
    bool last = false;  // the run ends with this save
  };

  [[nodiscard]] std::string begin();
  void write_now();
  void write_behind();
  void advance();
  void all_have_written();
  void conclude(const std::string& error);
  void note(const char* kind, const std::string& text, std::optional<double> seconds) const;

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
  std::string path_;
  std::vector<std::string> known_bad_;
  std::int64_t last_step_ = -1;
  struct SaveTimes {
    double stall_ms = 0;      // stall_ms()
    double save_seconds = 0;  // save_seconds()
  } times_;

  // Declared last: the thread of part_ uses the other members.
  std::atomic<bool> ending_{false};
  std::future<std::string> part_;  // this rank's work: write its file, then (rank 0) commit
};

}  // namespace sluice
