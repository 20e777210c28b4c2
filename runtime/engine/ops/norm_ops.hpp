// NormAndScale: the global gradient norm, the clip coefficient, and the loss over all ranks. One
// exchange of the world carries sums of squares, loss, learned targets (which pipeline stages
// without a batch do not know) and the ranks' votes. Compute lane.
//
// The norm is the sum over pipeline stages, groups, tensor-parallel ranks, then shards, of each
// shard's sum of squares in double: the same numbers in the same order on every ZeRO stage.
//
// A rank alone whose states are all on a GPU leaves the decision to the GPU (DeviceNorm): updates
// are enqueued behind the decision, and the host reads it at the end of the program.
//
// The gradients of a group that is updated in the backward are gone by then. decide_group() sums
// their squares before, and decides on that group's update alone. The decision uses only the
// group's gradients. Ranks that hold the same gradients therefore decide alike. Losses are not
// used, because each rank knows only its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "runtime/engine/device_norm.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class NormOps {
 public:
  // Collective over the world: ranks exchange their numbers of groups.
  explicit NormOps(const StepParts& parts);

  void begin_program();
  // `losses`: of the micro-batches, on a GPU; else undefined.
  void norm_and_scale(const at::Tensor& losses);
  // The decision of a group's update in the backward, in device memory: the update happens if this
  // rank's gradients of the group are finite, and on a rank alone the losses. REQUIRES: the
  // gradients are on a GPU.
  [[nodiscard]] const cuda::StepClip* decide_group(int group, const at::Tensor& losses);
  // The decision in device memory, for updates; null: norm_and_scale() has decided.
  [[nodiscard]] const cuda::StepClip* decision() const { return decision_; }
  // At the end of the program. Where the GPU has decided, waits for the result and returns true.
  bool finish();
  // Whether norm_and_scale() adds the losses to StepRun's sum.
  [[nodiscard]] bool reads_losses() const { return gpu_ != nullptr; }
  // Waits for all ranks of the mesh.
  void meet();

 private:
  // What a rank sends: loss, vote, learned targets, then for each group the sums of squares of its
  // shards.
  [[nodiscard]] std::vector<double> own_values(const at::Tensor& losses);
  [[nodiscard]] std::vector<double> gradient_sums(int group) const;
  void add_host_sums(std::vector<double>& values) const;
  void read_gpu(const at::Tensor& losses, std::vector<double>& values);
  // Enqueues the sums of the groups that are not summed yet.
  void sum_on_gpu();
  [[nodiscard]] double squares_of_all(std::span<const double> all, std::size_t stride) const;
  [[nodiscard]] cuda::ClipInput clip_input() const;
  void use_norm(double squares);

  const EngineSetup& setup_;
  StepRun& run_;
  GroupStore& store_;
  StepCarry& carry_;
  TierStore* const tiers_;
  std::vector<int> stage_groups_;    // number of groups, by pipeline stage
  std::unique_ptr<DeviceNorm> gpu_;  // null: gradients are on the host's side
  std::vector<bool> summed_;         // by group: on the GPU, in the backward
  // Sums on the GPU, by group the first: those of counted groups, then those of others, which are
  // summed only to decide on their updates.
  std::vector<std::int64_t> places_;
  std::int64_t counted_sums_ = 0;
  const cuda::StepClip* decision_ = nullptr;
  bool undecided_ = false;  // the GPU's decision is not read yet
};

}  // namespace sluice
