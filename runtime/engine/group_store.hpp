// One rank's parameters, gradients and optimizer states, group by group, as the ZeRO stage lays
// them out.
//
// Every long-lived byte is allocated in the constructor, one block a kind; tensors are views. A
// group that is not resident has a window without memory: bind_params() puts a slot of the arena
// under it and all views of its parameters, also those an autograd graph has saved, point there
// until unbind_params(). Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/engine/step_profile.hpp"

namespace sluice {

struct GroupState {
  std::vector<at::Tensor> params;  // full parameters, model dtype; readable while gathered
  std::vector<at::Tensor> grads;   // full gradients, fp32; writable while bound
  at::Tensor window;               // [elems] model dtype: what params view
  at::Tensor grad_full;            // [elems] fp32: what grads view
  at::Tensor shard;    // this rank's parameters, model dtype: [shard_elems], stage 0 [elems]
  at::Tensor master;   // fp32, of shard's size; the same memory in fp32
  at::Tensor moment1;  // fp32, of shard's size
  at::Tensor moment2;
  at::Tensor grad_shard;  // [shard_elems] fp32: the reduced gradient of this rank's shard
  at::Tensor grad_owned;  // fp32, of shard's size: what the update reads
  std::vector<ShardSegment> segments;  // of shard
  std::vector<bool> grad_written;      // by param, since the gradients were opened
  bool fresh = false;                  // the full parameters are those of the last update
};

class GroupStore {
 public:
  GroupStore(const ModelSpec& spec, const StepPlan& plan, int dp_rank, at::Device device,
             std::uint64_t seed);

  [[nodiscard]] GroupState& group(int g) { return groups_[static_cast<std::size_t>(g)]; }
  [[nodiscard]] int size() const { return static_cast<int>(groups_.size()); }
  // Views of a unit's parameters, in the unit's order.
  [[nodiscard]] const std::vector<at::Tensor>& unit_params(int unit) const {
    return unit_params_[static_cast<std::size_t>(unit)];
  }

  // Writes this rank's share of a whole parameter (fp32, on the host) to master and shard.
  void set_parameter(const StepPlan& plan, int g, int index, int dp_rank, const at::Tensor& value);

  void bind_params(int g, void* slot);
  void unbind_params(int g);
  // Gradients of the group from now on go to `slot`, padding zeroed.
  void bind_grads(int g, void* slot);
  void unbind_grads(int g);

 private:
  void make_windows(const StepPlan& plan);
  void make_states(const StepPlan& plan, int dp_rank);
  void initialise(const ModelSpec& spec, const StepPlan& plan, int dp_rank, std::uint64_t seed);

  at::Device device_;
  DType dtype_;
  std::vector<GroupState> groups_;
  std::vector<std::vector<ElemRange>> padding_;
  std::vector<std::vector<at::Tensor>> unit_params_;
};

}  // namespace sluice
