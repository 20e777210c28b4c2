#include "tests/runtime/program/stages.hpp"

#include <algorithm>
#include <map>

#include "parallel/pipeline/balance.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

StepShape cut_stage(const StepShape& model, const PipelineRun& run, const std::vector<int>& ends,
                    int stage) {
  StepShape shape = model;
  shape.units.clear();
  shape.groups.clear();
  shape.pipeline.stages = run.stages;
  shape.pipeline.stage = stage;
  shape.pipeline.schedule = run.schedule;
  shape.pipeline.message_bytes = model.units[0].memory.output;
  shape.pipeline.boundary_bytes = shape.pipeline.message_bytes;
  std::map<int, int> groups;  // of the model: the stage's
  for (int c = 0; c < run.virtual_stages; ++c) {
    const int part = c * run.stages + stage;
    const int begin = part == 0 ? 0 : ends[static_cast<std::size_t>(part) - 1];
    for (int u = begin; u < ends[static_cast<std::size_t>(part)]; ++u) {
      UnitShape unit = model.units[static_cast<std::size_t>(u)];
      for (int& g : unit.groups) {
        if (groups.count(g) == 0) {
          groups[g] = static_cast<int>(shape.groups.size());
          shape.groups.push_back(model.groups[static_cast<std::size_t>(g)]);
        }
        g = groups[g];
      }
      shape.units.push_back(std::move(unit));
    }
    shape.pipeline.chunk_ends.push_back(static_cast<int>(shape.units.size()));
  }
  return shape;
}

}  // namespace

std::vector<StepShape> make_stages(ShapeChoice choice, const PipelineRun& run) {
  choice.micro_batches = run.micro_batches;
  StepShape model = make_shape(choice);
  const bool tied = choice.tied && run.stages > 1;
  if (tied) model.groups[0].add_replicas = model.groups[0].at_ends = true;
  if (run.schedule == PipelineSchedule::kZeroBubble) {
    for (std::size_t u = 1; u + 1 < model.units.size(); ++u) {
      UnitMemory& memory = model.units[u].memory;
      memory.deferred = memory.kept / 2 + 128;
      memory.weights_peak = memory.output;
    }
  }
  const std::vector<double> costs(model.units.size(), 1);
  const std::vector<int> ends = balance_stages(costs, run.stages * run.virtual_stages);
  std::vector<StepShape> stages;
  for (int s = 0; s < run.stages; ++s) {
    stages.push_back(run.stages > 1 ? cut_stage(model, run, ends, s) : model);
  }
  return stages;
}

std::vector<Program> write_stages(const std::vector<StepShape>& stages, bool training) {
  std::vector<Program> programs;
  for (const StepShape& shape : stages) {
    programs.push_back(training ? write_train_step(shape) : write_eval_step(shape));
  }
  return programs;
}

std::string name_of(const PipelineRun& run) {
  return std::string(name_of(run.schedule)) + ", p " + std::to_string(run.stages) + ", v " +
         std::to_string(run.virtual_stages) + ", m " + std::to_string(run.micro_batches) + ": ";
}

std::vector<PipelineRun> all_runs(int stages, int micro_batches, int virtual_stages) {
  std::vector<PipelineRun> runs;
  for (int p = 2; p <= stages; ++p) {
    for (int m = 1; m <= micro_batches; ++m) {
      for (const auto schedule :
           {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kZeroBubble}) {
        runs.push_back({schedule, p, 1, m});
      }
      for (int v = 2; v <= virtual_stages; ++v) {
        runs.push_back({PipelineSchedule::kInterleaved, p, v, m});
      }
    }
  }
  return runs;
}

}  // namespace sluice
