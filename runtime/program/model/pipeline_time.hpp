// How long a step of a whole pipeline takes: the programs of all its stages, list-scheduled
// together. Pure.
//
// A message goes when both ends have come to it and the one before it on its wire has arrived. All
// stages take the norm together. Else each stage is scheduled as in time_model.hpp.
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
