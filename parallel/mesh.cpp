#include "parallel/mesh.hpp"

#include <cstdint>

#include "base/error.hpp"

namespace sluice {
namespace {

int& coordinate(MeshCoordinates& at, MeshAxis axis) {
  switch (axis) {
    case MeshAxis::kTensor:
      return at.tp;
    case MeshAxis::kData:
      return at.dp;
    case MeshAxis::kPipeline:
      break;
  }
  return at.pp;
}

void require_positive(int value, const std::string& name) {
  if (value >= 1) return;
  throw ConfigError(name + " = " + std::to_string(value) + ": must be at least 1");
}

}  // namespace

std::string name_of(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::kTensor:
      return "tp";
    case MeshAxis::kData:
      return "dp";
    case MeshAxis::kPipeline:
      break;
  }
  return "pp";
}

Mesh::Mesh(const ParallelOptions& options, int world)
    : tp_(options.tensor), dp_(options.data), pp_(options.pipeline) {
  require_positive(world, "world (number of ranks)");
  require_positive(tp_, "parallel.tensor");
  require_positive(pp_, "parallel.pipeline");
  if (dp_ < 0) require_positive(dp_, "parallel.data");
  const std::int64_t model = std::int64_t{tp_} * pp_;
  const std::string factors =
      "tensor (" + std::to_string(tp_) + ") x pipeline (" + std::to_string(pp_) + ")";
  if (dp_ == 0) {
    if (world % model != 0) {
      throw ConfigError("world (" + std::to_string(world) + ") is not a multiple of parallel " +
                        factors + " = " + std::to_string(model) +
                        ": change the number of ranks or the parallel section");
    }
    dp_ = static_cast<int>(world / model);
  }
  // 128 bits: the product of three ints.
  if (static_cast<__int128>(model) * dp_ != world) {
    throw ConfigError("world (" + std::to_string(world) + ") must equal parallel data (" +
                      std::to_string(dp_) + ") x " + factors +
                      ": change the number of ranks, or set parallel.data to auto");
  }
}

int Mesh::size(MeshAxis axis) const {
  switch (axis) {
    case MeshAxis::kTensor:
      return tp_;
    case MeshAxis::kData:
      return dp_;
    case MeshAxis::kPipeline:
      break;
  }
  return pp_;
}

MeshCoordinates Mesh::coordinates(int world_rank) const {
  check(world_rank >= 0 && world_rank < world(), "rank outside of the mesh");
  return {world_rank % tp_, world_rank / tp_ % dp_, world_rank / (tp_ * dp_)};
}

int Mesh::world_rank(const MeshCoordinates& at) const {
  check(at.tp >= 0 && at.tp < tp_ && at.dp >= 0 && at.dp < dp_ && at.pp >= 0 && at.pp < pp_,
        "coordinates outside of the mesh");
  return (at.pp * dp_ + at.dp) * tp_ + at.tp;
}

int Mesh::rank_in_group(MeshAxis axis, int world_rank) const {
  MeshCoordinates at = coordinates(world_rank);
  return coordinate(at, axis);
}

std::vector<int> Mesh::group(MeshAxis axis, int world_rank) const {
  MeshCoordinates at = coordinates(world_rank);
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i) {
    coordinate(at, axis) = i;
    ranks.push_back(this->world_rank(at));
  }
  return ranks;
}

std::string Mesh::group_name(MeshAxis axis, int world_rank) const {
  MeshCoordinates at = coordinates(world_rank);
  std::string name = name_of(axis);
  for (const MeshAxis other : kMeshAxes) {
    if (other == axis || size(other) == 1) continue;
    name += '.';
    name += name_of(other);
    name += std::to_string(coordinate(at, other));
  }
  return name;
}

}  // namespace sluice
