// Finds a unit's memory by a run of the unit's code on the meta device, without memory or
// arithmetic.
#pragma once

#include "runtime/model/units.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

struct ProfileShape {
  std::int64_t micro_batch = 1;
  std::int64_t seq = 1;
  DType dtype = DType::kFloat32;
  bool gradients_add = false;  // into a gradient buffer that other micro-batches have filled
  // Backward leaves gradients of weights for later if the unit can: `deferred` and `weights_peak`
  // are set; backward_peak and recompute_peak are those of the first half.
  bool split_backward = false;
};

// Memory of unit `index` of the model. Units are numbered as in spec.units, the loss head last.
// Dropout is on if the model has any. `seq`: of whole samples, also with sequence parallelism.
// Thread-safe if each thread has a model of its own.
[[nodiscard]] UnitMemory profile_unit(const Model& model, std::size_t index,
                                      const ProfileShape& shape);

// The exchanges with tensor-parallel ranks inside unit `index`, one micro-batch: recorded while the
// unit runs on the meta device. Empty lists without such ranks. Throws and is thread-safe as
// profile_unit; a watcher of the model's TensorGroup is told of nothing.
[[nodiscard]] UnitExchanges unit_exchanges(const Model& model, std::size_t index,
                                           const ProfileShape& shape);

// Memory of unit `index` for one sequence of up to `positions` positions that runs in parts
// (UnitCall::cache): its first positions in one call, then one at a time. Sets output and
// forward_only_peak of UnitMemory (of the loss head: for its logits). Throws Error if a unit cannot
// run in parts.
[[nodiscard]] UnitMemory profile_cached_unit(const Model& model, std::size_t index,
                                             std::int64_t positions, DType dtype);
// Bytes of the unit's cache.
[[nodiscard]] std::int64_t cache_bytes(const Model& model, std::size_t index,
                                       std::int64_t positions, DType dtype);

}  // namespace sluice
