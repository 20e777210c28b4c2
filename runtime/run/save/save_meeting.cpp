#include "runtime/run/save/save_meeting.hpp"

#include <array>
#include <utility>
#include <vector>

namespace sluice {

SaveMeeting::SaveMeeting(Communicator& world, PhaseObserver alive, std::int64_t own_bytes)
    : comm_(world), alive_(std::move(alive)), own_bytes_(own_bytes) {}

bool SaveMeeting::meet(bool ready) {
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

// A slow disk counts as alive while bytes move on any rank. During the sync of a file, the commit
// and the removal of old checkpoints no bytes move, possibly for long.
void SaveMeeting::tell_progress(bool ready, bool committing) {
  const bool has_written = moved_ >= own_bytes_;
  const char* doing = "saving a checkpoint: writing";
  if (ready) {
    doing = "saving a checkpoint: waiting for the other ranks";
  } else if (committing) {
    doing = "saving a checkpoint: completing it and removing old ones";
  } else if (has_written) {
    doing = "saving a checkpoint: syncing the file";
  }
  if (!some_rank_moved_ && told_ == doing) return;
  told_ = doing;
  alive_(told_, ready || has_written);
}

}  // namespace sluice
