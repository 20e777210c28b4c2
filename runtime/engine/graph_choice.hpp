// Whether training steps on a GPU are launched as graphs (ops/step_graphs.hpp), for runs and plans.
#pragma once

#include <string>

#include "runtime/engine/engine_settings.hpp"
#include "runtime/model/block_choice.hpp"

namespace sluice {

// Why the steps of a GPU's engine run operation by operation; empty: they are launched as graphs.
// REQUIRES: options.model.on_gpu.
[[nodiscard]] inline std::string why_no_graphs(const EngineOptions& options) {
  if (options.train.cuda_graphs == GraphChoice::kNever) return "train.cuda_graphs is never";
  if (options.model.dropout > 0) return "masks of model.dropout depend on the step";
  if (!runs_explicit_blocks(options.model)) return "libtorch's autograd runs the blocks";
  if (options.model.packed_rows) return "the documents of rows differ from step to step";
  if (options.offload.activations != Tier::kDevice) return "offload.activations moves tensors";
  if (options.part.tensor > 1 || options.part.stages > 1) {
    return "ranks that share a model exchange data within the compute";
  }
  return "";
}

// An engine of these options launches graphs.
[[nodiscard]] inline bool launches_graphs(const EngineOptions& options) {
  return options.model.on_gpu && options.purpose == EnginePurpose::kTrain &&
         why_no_graphs(options).empty();
}

}  // namespace sluice
