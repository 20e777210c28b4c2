// The ranks' meetings during a save: which ranks are done, and whether bytes still move on any
// rank. Borrows the communicator, which outlives the SaveMeeting.
//
// Only meet() is collective. Not thread-safe, except add_moved() and set_moved(), which the writing
// thread calls beside the other calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/program_runner.hpp"

namespace sluice {

class SaveMeeting {
 public:
  // `own_bytes`: bytes that this rank writes in a save. `alive`: see tell().
  SaveMeeting(Communicator& world, PhaseObserver alive, std::int64_t own_bytes);

  // Progress of this rank in the save: bytes written, plus one for each later action.
  void set_moved(std::int64_t bytes) { moved_ = bytes; }
  void add_moved() { ++moved_; }

  // True once all ranks have said `ready`.
  [[nodiscard]] bool meet(bool ready);

  // Calls alive() with this rank's action and whether the rank may be silent for longer.
  void tell(const char* doing, bool silent) const { alive_(doing, silent); }
  // Called while a rank waits for a save. Tells this rank's action if the action changed, or if a
  // rank progressed between the last two meetings. `ready`: this rank's part of the phase is done.
  // `committing`: the phase is the commit.
  void tell_progress(bool ready, bool committing);
  // Makes the next tell_progress() tell in any case.
  void forget_told() { told_.clear(); }

 private:
  Communicator& comm_;  // communicator of all ranks
  const PhaseObserver alive_;
  const std::int64_t own_bytes_;
  double moved_by_all_ = 0;      // at the last meeting
  bool some_rank_moved_ = true;  // between the last two meetings
  std::string told_;             // last text of tell_progress()
  std::atomic<std::int64_t> moved_{0};
};

}  // namespace sluice
