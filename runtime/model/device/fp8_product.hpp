// cuBLASLt's product of FP8 matrices, in the CUDA module.
#pragma once

#include "kernels/cuda/fp8_args.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice::cuda {

// Under the rules of launch.hpp. cuBLASLt's choice for a shape is kept for the process. Throws
// Error where cuBLASLt has no product.
void launch_fp8_product(const Fp8Product& product, StreamRef stream);

}  // namespace sluice::cuda
