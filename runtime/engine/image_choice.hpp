// Whether a run goes on from what a former one committed on NVMe (offload.image): the same on all
// ranks of the mesh. A rank cannot be more than one commit ahead of another, and keeps two; so
// there is a step that all of them have, unless some file is damaged or gone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/nvme_image.hpp"
#include "parallel/comm/communicator.hpp"
#include "runtime/engine/tier_limits.hpp"

namespace sluice {

class TierStore;

struct ImageChoice {
  std::int64_t step = -1;  // of the image that is taken; -1: none is
  std::string why_not;     // empty where there is none to speak of
  bool is_older = false;   // that is why,
  bool had_begun = false;  // or that no step was committed yet
};

// From what each rank has found, and the step of the newest checkpoint (-1: there is none). At the
// same step the image is taken: the checkpoint stays, but what is not taken of an image is lost,
// and the checkpoint may turn out to be damaged. Pure.
[[nodiscard]] ImageChoice choose_image(const std::vector<FoundImage>& by_rank,
                                       std::int64_t checkpoint);

// Opens the store on NVMe, on every rank: as the image is, or anew. Says which, and why. What is
// not taken is removed; where it cannot be read and there is nothing older to fall back to, it
// stays, and is an IoError. Collective. Throws BudgetError as well. REQUIRES: tiers.keeps_image().
[[nodiscard]] std::optional<ImageVersion> open_image(TierStore& tiers, Communicator& comm,
                                                     const ImageRequest& request);

}  // namespace sluice
