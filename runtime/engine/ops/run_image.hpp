// A run's image on NVMe (offload.image): the version that the run resumed from, and its commits.
// Without an image every call but keeps() does nothing.
//
// commit() is called on the disk lane while a program runs. set_state() is called only between
// programs. All calls but commit(): executing thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ticket.hpp"
#include "offload/nvme_image.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"

namespace sluice {

class Communicator;
class TierStore;

class RunImage {
 public:
  // Opens the NVMe store of `tiers`, as the image is or anew (image_choice.hpp). Collective over
  // `world`. `tiers` may be null.
  RunImage(TierStore* tiers, Communicator& world, const TierOptions& options);

  [[nodiscard]] bool keeps() const;
  // The image version that this run resumed from; empty: the run did not resume from an image.
  [[nodiscard]] const std::optional<ImageVersion>& found() const { return found_; }
  // Text that each commit stores beside the states (the run's manifest).
  void set_state(std::string state) { state_ = std::move(state); }
  // The states as they are now are those after `step`. REQUIRES: keeps(), updates are written.
  [[nodiscard]] Ticket commit(std::int64_t step);
  // States are about to be written from outside: until the next commit, no run may go on from the
  // image.
  void withdraw();
  // The run has completed: no run may go on from the image.
  void end();

 private:
  TierStore* const tiers_;
  std::optional<ImageVersion> found_;
  std::string state_;
};

}  // namespace sluice
