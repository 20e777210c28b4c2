// ZeRO options: the `zero:` section.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.hpp"

namespace sluice {

// When gradients are summed over the ranks. kMicroBatch is bit-identical on every stage. kStep
// (stages 0 and 1, and a rank alone) sums a rank's micro-batches first, then sends the sum once.
enum class ReduceEvery { kMicroBatch, kStep };

struct ZeroOptions {
  int stage = 1;                                 // 0..3
  std::int64_t bucket_bytes = 25 * 1024 * 1024;  // gradient bytes reduced by one operation
  int prefetch_units = 1;          // stage 3: units gathered ahead of the one that runs
  std::int64_t persist_below = 0;  // stage 3: parameter groups of fewer elements stay gathered
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  // Dtype in which ranks send gradients to their reduction: fp32, or bf16, rounded to nearest even.
  // The sum over the ranks is fp32 in either case.
  DType reduce_dtype = DType::kFloat32;
  // Stage 3 in fp16: a gather rounds master weights (ShardShape::rounds_master). A single rank
  // keeps the parameters of groups below this many elements, because one kernel per small group
  // costs more time than the memory is worth. Not a key. Unset: 16384 on GPUs, and no group on
  // CPUs.
  std::optional<std::int64_t> rounds_from;
};

}  // namespace sluice
