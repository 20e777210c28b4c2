// A rank's memory in the form of PyTorch's torch.cuda.memory._snapshot(), as a pickle: for
// pytorch.org/memory_viz and torch/cuda/_memory_viz.py. Devices 0, 1 and 2 are the tiers device,
// host and NVMe. Pure.
//
//   segments        allocations at the step's end, with their blocks: arrays of the state table
//                   and buffers that live on; gaps are inactive
//   device_traces   for each tier: births and deaths of the program's buffers in their order
//   frames          of a block or event: what it is, operations of its birth and death, its tag
#pragma once

#include <array>
#include <string>

#include "runtime/run/memory/tier_memory.hpp"

namespace sluice {

using TierMemories = std::array<TierMemory, kTierCount>;

[[nodiscard]] std::string torch_snapshot(const TierMemories& tiers, const Program& program);

}  // namespace sluice
