// A model's attention as work that the doctor times on a GPU (sluice::unit_timing).
#pragma once

#include "runtime/doctor/gpu_rates.hpp"

namespace sluice {

// An AttentionProbe: bf16 tensors of normal values on the calling thread's GPU, and the calls of a
// training run on them. Throws c10::Error without memory.
[[nodiscard]] std::function<void()> make_attention_work(const AttentionShape& shape);

}  // namespace sluice
