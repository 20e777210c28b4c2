// Predicts the step time of a whole pipeline: the programs of all stages, list-scheduled together.
// Pure.
//
// A message is sent when both ends have issued it and the previous message on its wire has arrived.
// All stages take part in a meeting (meets_all) together. Apart from messages and meetings, each
// stage is scheduled by the rules of time_model.hpp.
#pragma once

#include <span>
#include <vector>

#include "runtime/program/model/time_model.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

struct PipelineTime {
  double step_s = 0;
  // By stage: the share of the step in which the stage waits for other stages. With equal stages
  // and no other waits, the schedule's bubble: (p - 1) / (m + p - 1) for gpipe and 1f1b.
  std::vector<double> bubble;
  std::vector<TimeReport> stages;
};

// `seconds`: by stage, by operation. A message takes the seconds of its send. Throws Error if the
// programs do not fit together (pipeline_check.hpp).
[[nodiscard]] PipelineTime model_pipeline_time(std::span<const Program> stages,
                                               std::span<const std::vector<double>> seconds,
                                               double disk_duplex = 1, bool shared_cores = false);
// `shapes`: by stage, the shape that the program was written from. `rates`: by stage.
[[nodiscard]] PipelineTime predict_pipeline_time(std::span<const Program> stages,
                                                 std::span<const StepShape> shapes,
                                                 std::span<const Rates> rates);

}  // namespace sluice
