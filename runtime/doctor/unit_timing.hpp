// How fast one core runs a transformer's own units while every other core does the same: the rates
// that a plan prices forward and backward with. Needs libtorch: a library of its own
// (sluice::unit_timing), whose function the doctor is handed.
#pragma once

#include <functional>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

struct UnitTimingOptions {
  int cores = 1;
  std::vector<std::int64_t> hidden{128, 256, 512, 1024};  // multiples of 64
  int rounds = 3;                                         // the fastest counts
  // What 16-bit matrices are multiplied in (train.matmul: auto).
  MatmulType narrow_matmul = MatmulType::kNative;
  // Makes libtorch and the kernels compute with so many threads.
  std::function<void(int)> use_threads;
};

// Blocks of gpt2 and llama, their attention and the loss head, in fp32 and bf16. In processor time
// of a thread, so that a neighbour's load does not count; but how well the threads of one rank work
// together (threads_efficiency) is wall-clock time. Leaves one thread in use.
[[nodiscard]] std::vector<UnitRates> measure_unit_rates(const UnitTimingOptions& options);

}  // namespace sluice
