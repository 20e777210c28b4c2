// Values that follow from a configuration and the world's size. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "configs/run_config.hpp"

namespace sluice {

struct Derived {
  int dp = 1;                     // data-parallel ranks
  std::int64_t global_batch = 1;  // samples of an optimizer step
  std::int64_t accumulation = 1;  // micro-batches of a rank in an optimizer step
  std::int64_t kv_heads = 1;      // 0 filled in, as in the rest
  std::int64_t head_size = 1;
  std::int64_t ffn = 1;
  std::int64_t decay_steps = 0;
  std::int64_t wsd_decay = 0;  // 0 unless schedule.type is wsd
};

// REQUIRES: validate() passed for this configuration and this world (ranks of the whole job).
[[nodiscard]] Derived derive(const RunConfig& run, int world);

}  // namespace sluice
