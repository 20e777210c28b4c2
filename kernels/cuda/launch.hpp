// Launchers of the CUDA kernels. Plain structs and pointers without a CUDA header, so every source
// may include this header.
//
// A launcher enqueues on the given stream and returns. All pointers are device memory and must stay
// valid until the kernel has completed. A refused launch throws Error with the kernel's name and
// CUDA's reason. Any thread may call; the current device must be the stream's device. Results do
// not depend on grid or GPU. Results marked "CPU bits" are bit-identical to kernels/cpu without
// flush-to-zero.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice::cuda {

// A cudaStream_t that the caller owns.
struct StreamRef {
  void* stream = nullptr;
};

// As adamw(), with moments in fp32 only. CPU bits: every operation rounds once to nearest, in the
// CPU's order, and only the CPU's fma are fused. Ranks on a CPU flush subnormals to zero: the CPU
// stores 0 where the GPU stores a number below 1.2e-38. With an eps of ordinary size no other
// result differs.
void launch_adamw(const AdamWArgs& args, StreamRef stream);

// As convert(), add_to() and scale(). CPU bits, except NaN payloads.
void launch_convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n,
                    StreamRef stream);
void launch_add_to(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate,
                   StreamRef stream);
void launch_scale(float* x, std::int64_t n, float factor, StreamRef stream);

// CPU bits.
void launch_fill_normal(float* out, std::int64_t n, std::uint64_t seed, std::uint64_t seed_stream,
                        std::int64_t first_element, float mean, float std, StreamRef stream);
// REQUIRES: 0 <= p < 1.
void launch_dropout_mask(std::uint8_t* keep, std::int64_t n, std::uint64_t seed,
                         std::uint64_t seed_stream, std::int64_t first_element, double p,
                         StreamRef stream);

// *result = sum of squares in double, in two passes with a fixed order. `workspace` has
// sum_squares_workspace() doubles.
[[nodiscard]] std::int64_t sum_squares_workspace();
void launch_sum_squares(double* result, double* workspace, const void* x, DType dtype,
                        std::int64_t n, StreamRef stream);

// As softmax_cross_entropy(), but writes the loss of each row to losses[row]; the caller adds them.
// Targets are in device memory and are not checked. A target outside [0, vocab) other than
// kIgnoreTarget makes the loss and the gradient of its row NaN.
void launch_softmax_cross_entropy(const CrossEntropyArgs& args, double* losses, StreamRef stream);

}  // namespace sluice::cuda
