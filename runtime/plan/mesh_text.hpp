// What a plan says of its mesh: stages, the wires that its axes talk over. At most 80 columns.
// Pure.
#pragma once

#include <string>

#include "runtime/plan/planned_run.hpp"

namespace sluice {

// More than data-parallel ranks.
[[nodiscard]] bool is_mesh(const RunPlan& plan);
// "tensor 8 with sequence, pipeline 4 (interleaved, 2 chunks a stage), data 2"
[[nodiscard]] std::string mesh_words(const RunPlan& plan);

// A row for each stage, of many stages one for each class of ranks; empty without a pipeline.
[[nodiscard]] std::string stages_text(const RunPlan& plan);
// What a rank sends along each axis and over which wire; empty where no mesh is.
[[nodiscard]] std::string wires_text(const RunPlan& plan);

}  // namespace sluice
