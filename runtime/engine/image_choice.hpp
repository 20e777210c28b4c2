// Whether a run goes on from the image that a former run committed on NVMe (offload.image). All
// ranks of the mesh decide alike. A rank is at most one commit ahead of another rank and keeps two
// versions, so all ranks have one step in common, unless a file is damaged or missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/nvme_image.hpp"
#include "parallel/comm/communicator.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"

namespace sluice {

class TierStore;

struct ImageChoice {
  std::int64_t step = -1;  // of the image to take; -1: none
  std::string why_not;     // reason to take none; empty where no rank found an image
  bool is_older = false;   // reason: the checkpoint is newer
  bool had_begun = false;  // reason: the former run had not committed a step
};

// `checkpoint`: step of the newest checkpoint, -1: none. At the same step the image wins, because
// an image that is not taken is removed, while the checkpoint stays. Pure.
[[nodiscard]] ImageChoice choose_image(const std::vector<FoundImage>& by_rank,
                                       std::int64_t checkpoint);

// Opens the NVMe store on every rank, from the image or anew, and logs which and why. An image that
// is not taken is removed, once the checkpoint that serves in its place is known to be whole
// (ImageRequest::read_checkpoint). An image stays, and is an IoError, if another run than that of
// `run_id` committed it (run_of), or if it cannot be read and nothing older can be resumed.
// Collective. Throws BudgetError too. REQUIRES: tiers.keeps_image().
[[nodiscard]] std::optional<ImageVersion> open_image(TierStore& tiers, Communicator& comm,
                                                     const ImageRequest& request,
                                                     const std::string& run_id);

}  // namespace sluice
