// The numbers of a training step that kernels read from device memory. A recorded kernel keeps the
// address of the struct, so each launch of the recording has the numbers of its own step.
#pragma once

#include <cstdint>

namespace sluice::cuda {

struct StepScalars {
  std::uint64_t step = 0;  // chooses the masks of dropout (MaskPlace::step)
  float loss_factor = 1;   // loss scale / learned targets of the global batch
};

}  // namespace sluice::cuda
