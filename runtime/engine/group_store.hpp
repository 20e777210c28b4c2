// One rank's parameters, gradients and optimizer states by group, in the layout of the ZeRO stage.
//
// The constructor allocates the blocks of the table of states that are on the device; tensors are
// views of the blocks. A group that is not resident has a window without memory: bind_params() puts
// a slot of the arena under the window. All views of the group's parameters, also those that an
// autograd graph has saved, point to the slot until unbind_params(). Arrays off the device are
// TierStore's. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "runtime/engine/device_memory.hpp"
#include "runtime/engine/initial_weights.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

struct GroupState {
  std::vector<at::Tensor> params;  // full parameters, model dtype; readable while gathered
  // Full gradients, fp32; writable while bound. Of a frozen group undefined.
  std::vector<at::Tensor> grads;
  at::Tensor window;     // [elems] model dtype; params are views
  at::Tensor grad_full;  // [elems] fp32; grads are views
  // This rank's parameters, model dtype: [shard_elems], stage 0 [elems]. Undefined if off-device or
  // if gathers round master weights.
  at::Tensor shard;
  at::Tensor master;  // fp32, of elements updated on the device: the first of the shard
  // Of the same elements, in place of `master`: low 16 bits of master weights whose high part is
  // the bf16 shard.
  at::Tensor remainders;
  std::array<at::Tensor, kMostMoments> moments;  // of the same size; those of the optimizer
  bool master_is_shard = false;                  // in fp32: master views shard's memory
  at::Tensor grad_shard;  // [shard_elems]: the reduced gradient of this rank's shard; or none
  std::vector<at::Tensor> grad_streams;  // gradient shards of streams 1, 2, ...
  bool rounds_gradients = false;         // GroupShape::rounds_gradients
  at::Tensor grad_owned;  // gradient_dtype(), of shard's size: input of the update; or none
  std::vector<ShardSegment> segments;  // of shard
  // Number of the first owned element, for stochastic rounding. Replicas have equal numbers, so
  // they round alike; so have the parts of a group on tensor-parallel ranks.
  std::int64_t first_element = 0;
  std::vector<bool> grad_written;  // by param: written since the gradients were opened
};

class GroupStore {
 public:
  GroupStore(const ModelSpec& spec, const StepPlan& plan, const StateTable& table, int dp_rank,
             const DeviceMemory& memory);

  // The block of an array that belongs to no group (staging), as bytes. Empty if there is no block.
  [[nodiscard]] at::Tensor block(const StateTable& table, StateArray array) const;

  [[nodiscard]] GroupState& group(int g) { return nth(groups_, g); }
  [[nodiscard]] int size() const { return static_cast<int>(groups_.size()); }
  // Views of a unit's parameters, in the unit's order.
  [[nodiscard]] const std::vector<at::Tensor>& unit_params(int unit) const {
    return nth(unit_params_, unit);
  }

  // Sets owned elements [begin, begin + values.numel()) in master or remainders and in shard, for
  // elements that are on the device. `values`: fp32, on the host, of a bf16 model without ties
  // (kernels/cpu/update/remainder.hpp).
  void write_master(int g, std::int64_t begin, const at::Tensor& values);

  void bind_params(int g, void* slot);
  void unbind_params(int g);
  // Directs gradients of the group to `slot` and zeroes the padding, unless they are rounded.
  void bind_grads(int g, void* slot);
  // Rounds gradients from their slot to the owned ones and zeroes the padding, on the calling
  // thread's stream. REQUIRES: GroupShape::rounds_gradients.
  void round_grads(int g);
  // Does nothing if the group already has a newer slot.
  void unbind_grads(int g, const void* slot);
  // The gradients of a group that last until the update (lasting_gradient_elems()), where they have
  // no block: directs them to `memory` and zeroes the padding of full ones. Null: to no memory.
  void pass_grads(int g, void* memory);

 private:
  void take(const StateRow& row);
  void number_elements(const StepPlan& plan, int dp_rank);
  void make_views(const StepPlan& plan, int g, int dp_rank);
  void zero_padding(int g, const at::Tensor& whole);  // whole gradients of the group

  DeviceMemory memory_;
  DType dtype_;
  std::vector<at::Tensor> blocks_;  // by block of the table
  std::vector<GroupState> groups_;
  std::vector<std::vector<ElemRange>> padding_;
  std::vector<std::vector<at::Tensor>> unit_params_;
};

// Sets `to` to fp32 `values` of equal size, rounded as an update rounds. `to` on a GPU: on the
// calling thread's stream.
void round_to(const at::Tensor& to, const at::Tensor& values);

// Initial weights of `elems` owned elements of rank `dp_rank`, from `first` on; fp32 on the host,
// padding 0. Weights not in `initial` are drawn by (seed, name, element of the whole parameter), so
// the layout changes no weight.
[[nodiscard]] at::Tensor draw_owned(const ModelSpec& spec, const StepPlan& plan, int g, int dp_rank,
                                    std::int64_t first, std::int64_t elems, std::uint64_t seed,
                                    const InitialWeights& initial);

}  // namespace sluice
