// Small step shapes of pipeline stages: a model of shapes.hpp, cut.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {

// By stage. `choice.blocks` + 2 units; micro-batches as in `run`. A tied table has replicas in the
// first stage and the last.
[[nodiscard]] std::vector<StepShape> make_stages(ShapeChoice choice, const PipelineRun& run);

// A program for each.
[[nodiscard]] std::vector<Program> write_stages(const std::vector<StepShape>& stages,
                                                bool training = true);

[[nodiscard]] std::string name_of(const PipelineRun& run);

// Every schedule with p <= stages, m <= micro_batches, v <= virtual_stages.
[[nodiscard]] std::vector<PipelineRun> all_runs(int stages, int micro_batches, int virtual_stages);

}  // namespace sluice
