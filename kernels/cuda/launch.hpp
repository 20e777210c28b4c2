// Launchers of the CUDA kernels. Plain structs and pointers without a CUDA header, so every source
// may include this header.
//
// A launcher enqueues on the given stream and returns. All pointers are device memory and must stay
// valid until the kernel has completed. A refused launch throws Error with the kernel's name and
// CUDA's reason. Any thread may call; the current device must be the stream's device. Results do
// not depend on grid or GPU. Results marked "CPU bits" are bit-identical to kernels/cpu without
// flush-to-zero.
#pragma once

#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/sgd.hpp"

namespace sluice::cuda {

struct StepClip;

// A cudaStream_t that the caller owns.
struct StreamRef {
  void* stream = nullptr;
};

// As adamw() of `count` spans. Moments in bf16 need gradients in fp32 or bf16. `spans` is host
// memory and is read before the function returns. A kernel takes as many spans as its arguments
// have room for (64 of AdamW, 56 with moments in bf16), of the same dtypes and all with master
// weights or all with remainders, whose numbers (lr, decay, ...) have at most two sets of values.
// CPU bits: every operation rounds once to nearest, in the CPU's order, and only the CPU's fma are
// fused. Ranks on a CPU flush subnormals to zero: the CPU stores 0 where the GPU stores a number
// below 1.2e-38. With an eps of ordinary size no other result differs. With `clip` (step_clip.hpp,
// device memory) the kernel takes grad_scale from there, and does nothing where the step updates
// nothing.
void launch_adamw(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream);
// Likewise, as lion() and as sgd().
void launch_lion(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream);
void launch_sgd(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream);

}  // namespace sluice::cuda
