// ZeRO stage and its knobs: the `zero:` section.
#pragma once

#include <cstdint>

namespace sluice {

// Which gradients are summed over the ranks, and when. Per micro-batch is bit-identical on every
// stage; per step (stages 0 and 1 only) sums a rank's micro-batches first and crosses the wire
// once.
enum class ReduceEvery { kMicroBatch, kStep };

struct ZeroOptions {
  int stage = 1;                                 // 0..3
  std::int64_t bucket_bytes = 25 * 1024 * 1024;  // gradient bytes reduced by one operation
  int prefetch_units = 1;          // stage 3: units gathered ahead of the one that runs
  std::int64_t persist_below = 0;  // stage 3: parameter groups of fewer elements stay gathered
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
};

}  // namespace sluice
