#include "runtime/engine/ops/run_image.hpp"

#include "runtime/engine/image_choice.hpp"
#include "runtime/engine/tiers/tier_store.hpp"

namespace sluice {

RunImage::RunImage(TierStore* tiers, Communicator& world, const TierOptions& options)
    : tiers_(tiers) {
  if (keeps()) found_ = open_image(*tiers_, world, options.image, options.nvme.run_id);
}

bool RunImage::keeps() const { return tiers_ != nullptr && tiers_->keeps_image(); }

Ticket RunImage::commit(std::int64_t step) { return tiers_->commit(step, state_); }

void RunImage::withdraw() {
  if (keeps()) tiers_->withdraw_image();
}

void RunImage::end() {
  if (keeps()) tiers_->end_image();
}

}  // namespace sluice
