// The CUDA kernels' launchers. Plain structs and pointers, no CUDA header: any source may include
// this.
//
// Every launcher only enqueues on the given stream and returns; all pointers are device memory and
// must stay valid until the work is done. A launch that is refused throws Error with the kernel's
// name and CUDA's reason. Any thread may call; the current device must be the stream's. Results do
// not depend on grid or GPU; those marked "CPU bits" equal kernels/cpu bit for bit (without
// flush-to-zero there).
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice::cuda {

// A cudaStream_t that somebody else owns.
struct StreamRef {
  void* stream = nullptr;
};

// CPU bits: products, sums, roots and quotients are each rounded once, to nearest, in the CPU's
// order, and only what is fma there is fused here. A CPU that flushes subnormals to zero, as ranks
// do, stores 0 where this stores a number below 1.2e-38; with an eps of ordinary size nothing else
// differs by that. Fields and meaning as adamw(); moments in fp32 only, grad and weights in any
// type.
void launch_adamw(const AdamWArgs& args, StreamRef stream);

// CPU bits, NaN payloads excepted. Element ranges and meaning as convert(), add_to(), scale().
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

// *result = sum of squares in double, by two passes in a fixed order. `workspace` holds
// sum_squares_workspace() doubles.
[[nodiscard]] std::int64_t sum_squares_workspace();
void launch_sum_squares(double* result, double* workspace, const void* x, DType dtype,
                        std::int64_t n, StreamRef stream);

// As softmax_cross_entropy(): logits become gradients, losses[row] (double) is the loss of each
// row, which the caller sums. Targets are device memory and not checked: one outside [0, vocab),
// other than kIgnoreTarget, makes that row's loss NaN and its gradient NaN.
void launch_softmax_cross_entropy(const CrossEntropyArgs& args, double* losses, StreamRef stream);

}  // namespace sluice::cuda
