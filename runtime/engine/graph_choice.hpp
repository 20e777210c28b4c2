// Whether training steps on a GPU are launched as graphs (ops/step_graphs.hpp), for runs and plans.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/engine/engine_settings.hpp"

namespace sluice {

// The driver keeps a graph's kernels in memory of the card that no plan counts, some kilobytes
// each.
inline constexpr std::int64_t kMostGraphs = 1024;

// Most graphs of a step: forward and backward of each unit of the rank and micro-batch, and the
// weight gradients of a split backward. The loss head is one.
[[nodiscard]] inline std::int64_t most_graphs(const EngineOptions& options,
                                              std::int64_t micro_batches) {
  std::int64_t units = options.part.chunks.empty() ? options.model.layers + 2 : 0;
  for (const UnitRange& chunk : options.part.chunks) units += chunk.end - chunk.begin;
  const bool splits =
      options.part.stages > 1 && options.parallel.schedule == PipelineSchedule::kZeroBubble;
  return micro_batches * ((splits ? 3 : 2) * units - (options.part.ends_model() ? 1 : 0));
}

// Why the steps of a GPU's engine, of `micro_batches` each, run operation by operation; empty: they
// are launched as graphs. REQUIRES: options.model.on_gpu.
[[nodiscard]] inline std::string why_no_graphs(const EngineOptions& options,
                                               std::int64_t micro_batches) {
  if (options.train.cuda_graphs == GraphChoice::kNever) return "train.cuda_graphs is never";
  if (!options.model.explicit_units) return "libtorch's autograd runs the blocks";
  if (options.offload.activations != Tier::kDevice) return "offload.activations moves tensors";
  if (options.part.tensor > 1) return "tensor-parallel ranks exchange data within units";
  const std::int64_t graphs = most_graphs(options, micro_batches);
  if (graphs > kMostGraphs) {
    return "a step would be up to " + std::to_string(graphs) +
           " graphs, and each takes memory of the card";
  }
  return "";
}

// An engine of these options launches graphs.
[[nodiscard]] inline bool launches_graphs(const EngineOptions& options,
                                          std::int64_t micro_batches) {
  return options.model.on_gpu && options.purpose == EnginePurpose::kTrain &&
         why_no_graphs(options, micro_batches).empty();
}

}  // namespace sluice
