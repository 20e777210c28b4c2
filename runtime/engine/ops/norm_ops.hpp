// NormAndScale: the global gradient norm, the clip coefficient, and the loss over all ranks. One
// exchange of the world carries sums of squares, loss, learned targets (which pipeline stages
// without a batch do not know) and the ranks' votes. Compute lane.
//
// The norm is the sum over pipeline stages, groups, tensor-parallel ranks, then shards, of each
// shard's sum of squares in double: the same numbers in the same order on every ZeRO stage.
#pragma once

#include <span>
#include <vector>

#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class NormOps {
 public:
  // Collective over the world: ranks exchange their numbers of groups.
  explicit NormOps(const StepParts& parts);

  void norm_and_scale();
  // Waits for all ranks of the mesh.
  void meet();

 private:
  // What a rank sends: loss, vote, learned targets, then for each group the sums of squares of its
  // shards.
  [[nodiscard]] std::vector<double> own_values() const;
  [[nodiscard]] std::vector<double> gradient_sums(int group) const;
  [[nodiscard]] double squares_of_all(std::span<const double> all, std::size_t stride) const;
  void use_norm(double squares);

  const EngineSetup& setup_;
  StepRun& run_;
  GroupStore& store_;
  StepCarry& carry_;
  TierStore* const tiers_;
  std::vector<int> stage_groups_;  // number of groups, by pipeline stage
};

}  // namespace sluice
