// Compares the host's AdamW kernel with the rate at which the same threads read, change and write
// the same memory.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "runtime/bench/summary.hpp"

namespace sluice {

struct AdamBenchOptions {
  std::int64_t elems = std::int64_t{32} * 1024 * 1024;  // parameters
  int threads = 1;
  DType dtype = DType::kFloat32;  // of gradients and, in 16 bits, of the weights written beside
  int rounds = 15;
};

struct AdamBenchResult {
  AdamBenchOptions options;
  std::string isa;                   // the kernels' instruction set
  std::int64_t bytes_per_param = 0;  // read and written by an update
  Summary adam;                      // seconds of one update of all parameters
  Summary read_modify_write;         // seconds of x *= 1 over masters and moments
  double params_per_s = 0;
  double bytes_per_s = 0;
  double limit_bytes_per_s = 0;  // of read_modify_write
  double of_limit = 0;           // bytes_per_s / limit_bytes_per_s, median over the rounds
  std::string limit;             // what limits it, one sentence
};

// Rounds of the update and of the limit alternate, so that both see the same machine. Sets the
// number of compute threads (kernels/cpu/parallel.hpp). Throws ConfigError if the machine's memory
// is too small. One call at a time.
[[nodiscard]] AdamBenchResult run_adam_bench(const AdamBenchOptions& options);

[[nodiscard]] std::string describe(const AdamBenchResult& result);  // a table
[[nodiscard]] std::string to_json(const AdamBenchResult& result);

}  // namespace sluice
