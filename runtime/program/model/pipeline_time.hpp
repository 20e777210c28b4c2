// Predicts the step time of a whole pipeline: the programs of all stages, list-scheduled together.
// Pure.
//
// A message is sent when both ends have come to it and the message before it on its wire has
// arrived. All stages take part in a meeting (meets_all) together. Otherwise each stage is
// scheduled as time_model.hpp says.
#pragma once

#include <span>
#include <vector>

#include "runtime/program/model/time_model.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

struct PipelineTime {
  double step_s = 0;
  // By stage: the share of the step in which it waits for other stages. On equal stages, with
  // nothing else to wait for, the schedule's bubble: (p - 1) / (m + p - 1) for gpipe and 1f1b.
  std::vector<double> bubble;
  std::vector<TimeReport> stages;
};

// `seconds`: by stage, by operation; of a message, those of its send. Throws Error where the
// programs do not fit together (pipeline_check.hpp).
[[nodiscard]] PipelineTime model_pipeline_time(std::span<const Program> stages,
                                               std::span<const std::vector<double>> seconds,
                                               double disk_duplex = 1, bool shared_cores = false);
// `shapes`, `rates`: by stage; what the programs were written from, and what its ranks can do.
[[nodiscard]] PipelineTime predict_pipeline_time(std::span<const Program> stages,
                                                 std::span<const StepShape> shapes,
                                                 std::span<const Rates> rates);

}  // namespace sluice
