// A step's state for the tests of the lines that show it.
#pragma once

#include "runtime/observe/progress.hpp"

namespace sluice {

inline ProgressState example_state() {
  return {.step = 120,
          .steps = 2000,
          .loss = 3.4123,
          .grad_norm = 0.8651,
          .lr = 2.9e-4,
          .step_ms = 412.3,
          .tokens_per_s = 19876,
          .mfu = 0.412,
          .device_bytes = 1395864371,
          .eta_seconds = 782.1};
}

}  // namespace sluice
