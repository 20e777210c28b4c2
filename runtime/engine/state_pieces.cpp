#include "runtime/engine/state_pieces.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/engine/param_parts.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

// Without names and ranges. A group's rows of one tag have one type.
StatePiece states_of(const StateTable& table, int g, std::span<const StateKind> kinds) {
  const auto type_of = [&](Tag tag) -> std::optional<DType> {
    const auto row = std::ranges::find_if(
        table.rows, [&](const StateRow& r) { return r.group == g && r.tag == tag; });
    return row == table.rows.end() ? std::nullopt : std::optional(row->dtype);
  };
  const auto master = type_of(Tag::kMaster);
  const auto params = type_of(Tag::kParameters);
  const auto moments = type_of(Tag::kMoments);
  check(params || master, "a group has a row of parameters or of master weights");
  StatePiece states;
  states.moments = moments.value_or(DType::kFloat32);
  states.master = master.value_or(params.value_or(DType::kFloat32));
  states.states = moments ? kinds : kinds.first(1);
  states.group = g;
  return states;
}

// Adds the parts of elements [begin, end) of the group; the rank owns the group from `owned` on.
void add_pieces(const ModelSpec& spec, const StepPlan& plan, const StatePiece& states,
                std::int64_t owned, ElemRange range, std::vector<StatePiece>& pieces) {
  const int g = states.group;
  const std::vector<ParamSpec>& params = nth(spec.groups, g).params;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const TensorPlacement& tensor = nth(plan.groups, g).tensors[i];
    const std::int64_t offset = tensor.offset_elems;
    const std::int64_t end = std::min(range.end, offset + tensor.elems);
    const std::int64_t from = std::max(range.begin, offset);
    if (from >= end) continue;
    for (const ParamPart& part : parts_of(params[i], from - offset, end - offset)) {
      StatePiece& piece = pieces.emplace_back(states);
      piece.name = tensor.spec.name;
      piece.shape = whole_shape(params[i]);
      piece.box = part.box;
      piece.begin = part.begin;
      piece.end = part.end;
      piece.owned_begin = offset + part.local - owned;
    }
  }
}

std::vector<StatePiece> pieces_of(const ModelSpec& spec, const StepPlan& plan,
                                  const StateTable& table, int dp_rank, bool saved) {
  const std::span<const StateKind> kinds = rule_of(plan.shape.optimizer).states();
  std::vector<StatePiece> pieces;
  for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
    if (saved && !nth(spec.groups, g).counted) continue;
    const GroupPlan& group = nth(plan.groups, g);
    const bool whole = owns_whole_groups(plan.shape);
    const std::int64_t shard = dp_rank * group.shard_elems;
    const ElemRange range =
        whole && !saved ? ElemRange{0, group.elems} : ElemRange{shard, shard + group.shard_elems};
    add_pieces(spec, plan, states_of(table, g, kinds), whole ? 0 : shard, range, pieces);
  }
  return pieces;
}

}  // namespace

std::vector<StatePiece> owned_pieces(const ModelSpec& spec, const StepPlan& plan,
                                     const StateTable& table, int dp_rank) {
  return pieces_of(spec, plan, table, dp_rank, false);
}

std::vector<StatePiece> saved_pieces(const ModelSpec& spec, const StepPlan& plan,
                                     const StateTable& table, int dp_rank) {
  return pieces_of(spec, plan, table, dp_rank, true);
}

std::int64_t bytes_of(const std::vector<StatePiece>& pieces) {
  std::int64_t bytes = 0;
  for (const StatePiece& piece : pieces) bytes += piece.bytes();
  return bytes;
}

}  // namespace sluice
