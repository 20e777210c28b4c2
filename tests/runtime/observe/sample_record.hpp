// A step's record with a different value in each field.
#pragma once

#include <cstdint>

#include "runtime/observe/step_record.hpp"

namespace sluice::testing {

inline StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 3.5;
  record.grad_norm = 0.25;
  record.lr = 2.9e-4;
  record.loss_scale = 65536;
  record.tokens = 8192 * step;
  record.step_ms = 412;
  record.tokens_per_s = 19900.5;
  record.tflops = 1.5;
  record.mfu = 0.41;
  record.memory = {
      .device_peak = 1, .host_peak = 2, .pinned = 3, .nvme = 5'000'000'000'000, .resident_peak = 6};
  record.timers_ms = {.forward = 1, .backward = 2, .comm = 3, .optimizer = 4, .io = 5, .data = 6};
  return record;
}

}  // namespace sluice::testing
