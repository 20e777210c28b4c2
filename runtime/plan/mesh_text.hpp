// Text about a plan's mesh: pipeline stages, and the wires of the axes. At most 80 columns. Pure.
#pragma once

#include <string>

#include "runtime/plan/planned_run.hpp"

namespace sluice {

// True if the mesh has tensor-parallel ranks or pipeline stages.
[[nodiscard]] bool is_mesh(const RunPlan& plan);
// "tensor 8 with sequence, pipeline 4 (interleaved, 2 chunks a stage), data 2"
[[nodiscard]] std::string mesh_words(const RunPlan& plan);

// One row per stage, or with many stages one per class of ranks; empty without a pipeline.
[[nodiscard]] std::string stages_text(const RunPlan& plan);
// The bytes that a rank sends along each axis, and the wire; empty without a mesh.
[[nodiscard]] std::string wires_text(const RunPlan& plan);

}  // namespace sluice
