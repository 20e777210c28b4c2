// A second opinion on programs with tiers: plays them one after another, with lanes that start and
// end operations whenever they may (an adversary from a seed decides), and version numbers in place
// of tensors. Written apart from tier_check: it knows units, groups, shards and tiers, and it
// judges by what is in memory, not by what waits for what.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

enum class PlayKind { kTrain, kUpdates, kRemake, kEvaluate };

struct Playing {
  const Program* program = nullptr;
  PlayKind kind = PlayKind::kTrain;
};

// The first thing that would make a step wrong; empty if none. A step that speculated and is thrown
// away is followed by the program of updates, which makes replaced parameters again. Before the
// first program lies a step: its gradients wait for their update. The seed decides which steps
// speculate, which are clipped, and which are thrown away.
[[nodiscard]] std::string simulate(std::span<const Playing> programs, const StepShape& shape,
                                   std::uint64_t seed);

// Six steps of `train`, with a look at the parameters after the third and the fifth.
[[nodiscard]] std::string play_steps(const Program& train, const StepShape& shape,
                                     std::uint64_t seed);

}  // namespace sluice
