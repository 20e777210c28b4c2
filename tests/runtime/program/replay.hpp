// A second opinion on a program: plays it against the shape it was written from, with numbers in
// place of tensors. Written apart from program_check: it knows units, groups and shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

struct ReplayResult {
  std::string fault;         // the first thing that would make the step wrong; empty if none
  std::string waste;         // the first thing that is right but holds memory longer than promised
  std::vector<int> gathers;  // by group
};

// What is checked: each unit forward once and backward once a micro-batch, in order; parameters
// there from their gather to their release; each element of each shard is the sum over all units
// and micro-batches, each once; norm after all reductions; buffers born once and freed once, not
// under an operation on its way. Waste: parameters outside the prefetch window, gradients kept
// after the reduction that may still be under way, buckets over their size.
[[nodiscard]] ReplayResult replay(const Program& program, const StepShape& shape, bool training);

}  // namespace sluice
