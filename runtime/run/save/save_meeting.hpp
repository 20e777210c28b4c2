// Where the ranks meet while a save is under way: who has done its part, and whether bytes still
// move on any rank. Borrows the communicator, which outlives it.
//
// meet() is collective, no other call is. Not thread-safe, but for add_moved() and set_moved(),
// which the thread that writes calls beside the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/program_runner.hpp"

namespace sluice {

class SaveMeeting {
 public:
  // `own_bytes`: what this rank writes in a save. `alive`: see tell().
  SaveMeeting(Communicator& world, PhaseObserver alive, std::int64_t own_bytes);

  // Bytes that this rank has written of the save under way, and a little for each thing done after
  // them.
  void set_moved(std::int64_t bytes) { moved_ = bytes; }
  void add_moved() { ++moved_; }

  // True once all ranks have said `ready`.
  [[nodiscard]] bool meet(bool ready);

  // Calls alive(): what this rank does, and whether it may be silent for longer.
  void tell(const char* doing, bool silent) const { alive_(doing, silent); }
  // While a save is waited for: tells what this rank does, where that has changed or some rank had
  // moved before the ranks met last. `ready`: own part done; `committing`: the phase.
  void tell_progress(bool ready, bool committing);
  // The next tell_progress() tells in any case.
  void forget_told() { told_.clear(); }

 private:
  Communicator& comm_;  // of all ranks
  const PhaseObserver alive_;
  const std::int64_t own_bytes_;
  double moved_by_all_ = 0;      // when the ranks met last
  bool some_rank_moved_ = true;  // before they did
  std::string told_;             // by tell_progress(), last
  std::atomic<std::int64_t> moved_{0};
};

}  // namespace sluice
