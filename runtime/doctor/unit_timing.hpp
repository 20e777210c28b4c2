// Times a transformer's own units on one core while every other core does the same: the rates by
// which a plan prices forward and backward. Needs libtorch, so it is a library of its own
// (sluice::unit_timing), and the doctor receives its function as an argument.
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
  // Type of 16-bit products (train.matmul: auto).
  MatmulType narrow_matmul = MatmulType::kNative;
  // Sets the number of threads of libtorch and the kernels.
  std::function<void(int)> use_threads;
};

// Times blocks of gpt2 and llama, their attention and the loss head, in fp32 and bf16. Times are
// processor time of a thread, so that a neighbour's load does not count. threads_efficiency (how
// well the threads of one rank work together) is wall-clock time. Leaves one thread in use.
[[nodiscard]] std::vector<UnitRates> measure_unit_rates(const UnitTimingOptions& options);

}  // namespace sluice
