// Which part of a model a rank of a mesh has. Pure; thread-safe.
#pragma once

#include <vector>

#include "parallel/mesh.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

// All units in `chunks` runs, one unit or more in each: with `stage_layers` blocks each where these
// are given. Else the one that costs most (FLOP of its forward) costs as little as it can, and then
// the others are as even as they can be. Throws ConfigError: fewer units than chunks, or
// stage_layers of another model.
[[nodiscard]] std::vector<UnitRange> cut_units(const ModelSpec& whole, int chunks,
                                               const std::vector<int>& stage_layers = {});

// Chunk c of pipeline x virtual_stages is run by stage c % pipeline. REQUIRES: the rules between
// `parallel` and the model hold (configs/validate.hpp).
[[nodiscard]] ModelPart part_of_rank(const ModelOptions& model, const ParallelOptions& parallel,
                                     const MeshCoordinates& at);

}  // namespace sluice
