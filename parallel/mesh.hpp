// The mesh of ranks: the coordinates of each rank along the axes tensor, data and pipeline.
//
//   rank = (pp * dp_size + dp) * tp_size + tp
//
// tp changes fastest. Tensor-parallel ranks communicate most, so they are neighbours and share a
// host. A group along an axis holds the ranks that differ only in that coordinate, ordered by the
// coordinate. Immutable values; pure; thread-safe.
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
  // data = 0 (auto) means world / (tensor x pipeline). Throws ConfigError, which shows the
  // equation, unless world = tensor x data x pipeline.
  Mesh(const ParallelOptions& options, int world);

  [[nodiscard]] int world() const { return tp_ * dp_ * pp_; }
  [[nodiscard]] int size(MeshAxis axis) const;

  [[nodiscard]] MeshCoordinates coordinates(int world_rank) const;  // REQUIRES: 0 <= rank < world()
  [[nodiscard]] int world_rank(const MeshCoordinates& at) const;    // REQUIRES: within the sizes
  // The rank within the group along `axis`, which is the coordinate of world_rank.
  [[nodiscard]] int rank_in_group(MeshAxis axis, int world_rank) const;
  // World ranks of the group of world_rank along `axis`, ordered by rank in the group.
  [[nodiscard]] std::vector<int> group(MeshAxis axis, int world_rank) const;
  // A unique name of the group of world_rank along `axis`: "dp" if the axis has one group, else for
  // example "dp.tp1.pp0". Communicators carry this name.
  [[nodiscard]] std::string group_name(MeshAxis axis, int world_rank) const;

 private:
  int tp_;
  int dp_;
  int pp_;
};

[[nodiscard]] std::string name_of(MeshAxis axis);  // "tp", "dp", "pp"

}  // namespace sluice
