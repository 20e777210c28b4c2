// What an engine begins with, and what it leaves on NVMe for another one to begin with.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/image_choice.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

void Engine::make_tiers(std::span<const Program* const> programs) {
  if (!copies_) return;
  TierOptions options = with_dma(options_.tiers, device_);
  options.nvme.ranks = world_.size();
  tiers_ = std::make_unique<TierStore>(plan_, options_.optimizer, programs, store_, data_.rank(),
                                       options_.train.seed, options, copies_);
  if (tiers_->keeps_image()) image_ = open_image(*tiers_, world_, options.image);
}

// In pieces: a group may be a good part of the memory there is.
void Engine::make_first_weights() {
  constexpr std::int64_t kDrawnAtOnce = 1 << 20;
  for (int g = 0; g < store_.size(); ++g) {
    const std::int64_t owned = owned_elems(plan_.shape, g);
    for (std::int64_t begin = 0; begin < owned; begin += kDrawnAtOnce) {
      if (observer_) observer_("first weights", false);  // may be read, from a slow disk
      const std::int64_t elems = std::min(kDrawnAtOnce, owned - begin);
      if (image_) {
        fill_from_image(g, begin, elems);
      } else {
        write_owned(g, begin,
                    draw_owned(model_.spec, plan_, g, data_.rank(), begin, elems,
                               options_.train.seed, options_.initial_weights));
      }
    }
  }
}

// States stay where they are; what is elsewhere is made of the master weights.
void Engine::fill_from_image(int g, std::int64_t begin, std::int64_t elems) {
  if (parameter_tier(plan_.shape, g) == Tier::kNvme) return;
  const at::Tensor values = empty_tensor({elems}, c10::ScalarType::Float);
  const std::span<float> span(host_data<float>(values), static_cast<std::size_t>(elems));
  tiers_->read_state(g, StateKind::kMaster, begin, span);
  store_.write_master(g, begin, values);
  tiers_->fill_params(g, begin, span);
}

void Engine::set_image_state(std::string state) { image_state_ = std::move(state); }

// A step that is looked at once more changes nothing, so there is nothing to commit.
Ticket Engine::commit() {
  if (mode_ != Mode::kTrain) return {};
  return tiers_->commit(input_.step - 1, image_state_);
}

bool Engine::comes_after_commit(const Op& op) const {
  return program_->image && std::any_of(op.waits.begin(), op.waits.end(), [this](OpId wait) {
           return program_->ops[static_cast<std::size_t>(wait)].kind == OpKind::kCommit;
         });
}

// All ranks have committed what they began the step with: some of it is overwritten from here on.
void Engine::meet(const Op& op) {
  waiting(op, true);
  world_.barrier();
  waiting(op, false);
}

void Engine::commit_image() {
  if (!keeps_image() || !trained_) return;
  finish_updates();
  tiers_->commit(input_.step, image_state_).wait();
}

void Engine::end_image() {
  if (keeps_image()) tiers_->end_image();
}

}  // namespace sluice
