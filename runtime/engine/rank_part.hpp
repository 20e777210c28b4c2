// The part of the model that each rank of a mesh runs. Pure; thread-safe.
#pragma once

#include <vector>

#include "parallel/mesh.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

// Cuts the units into `chunks` runs of at least one unit. Runs have `stage_layers` blocks if given.
// Else the cut first minimises the forward FLOP of the most expensive run, then evens out the other
// runs. Throws ConfigError if the model has fewer units than chunks, or stage_layers does not fit.
[[nodiscard]] std::vector<UnitRange> cut_units(const ModelSpec& whole, int chunks,
                                               const std::vector<int>& stage_layers = {});

// Chunk c of pipeline x virtual_stages is run by stage c % pipeline. REQUIRES: the rules between
// `parallel` and the model hold (configs/validate.hpp).
[[nodiscard]] ModelPart part_of_rank(const ModelOptions& model, const ParallelOptions& parallel,
                                     const MeshCoordinates& at);

}  // namespace sluice
