// The element ranges of named parameters that a rank saves and restores. Ranges do not depend on
// the parallel layout and contain no padding. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/model/model_spec.hpp"
#include "zero/state_table.hpp"

namespace sluice {

// Elements [begin, end) of a box of a parameter: master weights and the moments.
struct StatePiece {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole parameter
  Box box;                          // within it
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // The same on every rank: the type of the group's rows. Where the table has no row of master
  // weights, they are the parameters.
  DType moments = DType::kFloat32;
  DType master = DType::kFloat32;
  std::span<const StateKind> states = kStateKinds;  // master weights, and the moments with a row
  int group = 0;
  std::int64_t owned_begin = 0;  // where `begin` is in what the rank owns of the group

  [[nodiscard]] std::int64_t elems() const { return end - begin; }
  [[nodiscard]] std::int64_t bytes() const {
    return elems() *
           (size_of(master) + static_cast<std::int64_t>(states.size() - 1) * size_of(moments));
  }
};

// All elements that the rank owns, in the order of groups and tensors. A restore must write all of
// them. In stage 0 a rank owns all elements. `plan` and `table`: of a model of this spec.
[[nodiscard]] std::vector<StatePiece> owned_pieces(const ModelSpec& spec, const StepPlan& plan,
                                                   const StateTable& table, int dp_rank);

// The rank's share of what is saved: over all ranks of the mesh each element comes once. In stage
// 0, where all data-parallel ranks hold the same, they divide it as stage 1 would; of other
// replicas one is saved (ParamGroup::counted).
[[nodiscard]] std::vector<StatePiece> saved_pieces(const ModelSpec& spec, const StepPlan& plan,
                                                   const StateTable& table, int dp_rank);

[[nodiscard]] std::int64_t bytes_of(const std::vector<StatePiece>& pieces);

}  // namespace sluice
