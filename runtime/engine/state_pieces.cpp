#include "runtime/engine/state_pieces.hpp"

#include <algorithm>

#include "runtime/engine/param_parts.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

// Adds the parts of elements [begin, end) of the group; the rank owns the group from `owned` on.
void add_pieces(const ModelSpec& spec, const StepPlan& plan, int g, std::int64_t owned,
                ElemRange range, std::vector<StatePiece>& pieces) {
  const Placement& placement = plan.shape.placement;
  const bool frozen = is_frozen(plan.shape, g);
  const std::span<const StateKind> states = rule_of(plan.shape.optimizer).states();
  const bool all_away = placement.optimizer != Tier::kDevice && device_elems(plan.shape, g) == 0;
  const std::vector<ParamSpec>& params = spec.groups[static_cast<std::size_t>(g)].params;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const TensorPlacement& tensor = plan.groups[static_cast<std::size_t>(g)].tensors[i];
    const std::int64_t offset = tensor.offset_elems;
    const std::int64_t end = std::min(range.end, offset + tensor.elems);
    const std::int64_t from = std::max(range.begin, offset);
    if (from >= end) continue;
    for (const ParamPart& part : parts_of(params[i], from - offset, end - offset)) {
      pieces.push_back({.name = tensor.spec.name,
                        .shape = whole_shape(params[i]),
                        .box = part.box,
                        .begin = part.begin,
                        .end = part.end,
                        .moments = all_away ? placement.moments_dtype : DType::kFloat32,
                        .master = frozen ? plan.shape.dtype : DType::kFloat32,
                        .states = frozen ? states.first(1) : states,
                        .group = g,
                        .owned_begin = offset + part.local - owned});
    }
  }
}

std::vector<StatePiece> pieces_of(const ModelSpec& spec, const StepPlan& plan, int dp_rank,
                                  bool saved) {
  std::vector<StatePiece> pieces;
  for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
    if (saved && !spec.groups[static_cast<std::size_t>(g)].counted) continue;
    const GroupPlan& group = plan.groups[static_cast<std::size_t>(g)];
    const bool whole = owns_whole_groups(plan.shape);
    const std::int64_t shard = dp_rank * group.shard_elems;
    const ElemRange range =
        whole && !saved ? ElemRange{0, group.elems} : ElemRange{shard, shard + group.shard_elems};
    add_pieces(spec, plan, g, whole ? 0 : shard, range, pieces);
  }
  return pieces;
}

}  // namespace

std::vector<StatePiece> owned_pieces(const ModelSpec& spec, const StepPlan& plan, int dp_rank) {
  return pieces_of(spec, plan, dp_rank, false);
}

std::vector<StatePiece> saved_pieces(const ModelSpec& spec, const StepPlan& plan, int dp_rank) {
  return pieces_of(spec, plan, dp_rank, true);
}

std::int64_t bytes_of(const std::vector<StatePiece>& pieces) {
  std::int64_t bytes = 0;
  for (const StatePiece& piece : pieces) bytes += piece.bytes();
  return bytes;
}

}  // namespace sluice
