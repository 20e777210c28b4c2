// The mesh of ranks: which rank does which part of the work.
//
// Axes, fastest first: tp (tensor), dp (data), pp (pipeline): rank = (pp * dp_size + dp) * tp_size
// + tp. So tensor-parallel ranks, which talk most, are neighbours and share a host. A group along
// an axis is the ranks that differ in that coordinate alone, in its order. Values; pure;
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "parallel/parallel_options.hpp"

namespace sluice {

enum class MeshAxis { kTensor, kData, kPipeline };
inline constexpr MeshAxis kMeshAxes[] = {MeshAxis::kTensor, MeshAxis::kData, MeshAxis::kPipeline};

struct MeshCoordinates {
  int tp = 0;
  int dp = 0;
  int pp = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

class Mesh {
 public:
  // Throws ConfigError, with the equation, unless world = tensor x data x pipeline. data = 0 (auto)
  // is world / (tensor x pipeline).
  Mesh(const ParallelOptions& options, int world);

  [[nodiscard]] int world() const { return tp_ * dp_ * pp_; }
  [[nodiscard]] int size(MeshAxis axis) const;

  [[nodiscard]] MeshCoordinates coordinates(int world_rank) const;  // REQUIRES: 0 <= rank < world()
  [[nodiscard]] int world_rank(const MeshCoordinates& at) const;    // REQUIRES: within the sizes
  // The rank's place in its group along the axis: its coordinate.
  [[nodiscard]] int rank_in_group(MeshAxis axis, int world_rank) const;
  // World ranks of the group along `axis` that world_rank belongs to, by rank in the group.
  [[nodiscard]] std::vector<int> group(MeshAxis axis, int world_rank) const;
  // The same text on all ranks of a group, another for every other group: "dp", or "dp.tp1.pp0"
  // where there are several of this axis. Names communicators.
  [[nodiscard]] std::string group_name(MeshAxis axis, int world_rank) const;

 private:
  int tp_;
  int dp_;
  int pp_;
};

[[nodiscard]] std::string name_of(MeshAxis axis);  // "tp", "dp", "pp"

}  // namespace sluice
