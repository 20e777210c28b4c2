// Kernels with and without faults, for the tests of the emulation.
#pragma once

#include <driver_types.h>

namespace emulated_gpu {

// out[i] = kSampleThreads - 1 - i, through shared memory.
inline constexpr int kSampleThreads = 96;
void launch_reverse(int* out, bool with_barrier, cudaStream_t stream);
// out[i] = (i + 1) % 32, through shared memory of a warp.
void launch_neighbour(int* out, bool with_barrier, cudaStream_t stream);
// out = the last block that ran.
void launch_last_block(int* out, int blocks, cudaStream_t stream);
// out[i] = i for each thread of a grid of 2 x 3 x 2 blocks of 4 x 3 x 5 threads.
inline constexpr int kPlaces = 720;
void launch_places(int* out, cudaStream_t stream);
// out[i] = of the warp's lanes: the sum, the largest, the value of the lane above, all of value i.
void launch_warp(int* sum, unsigned* most, int* above, cudaStream_t stream);
// out = an int of shared memory that nobody wrote.
void launch_unwritten(int* out, cudaStream_t stream);

// Threads that do not meet.
enum class Fault { kEndedLane, kOtherOperation, kMissingLane, kBarrierInWarp, kBarrier };
void launch_fault(int* out, Fault fault, cudaStream_t stream);

}  // namespace emulated_gpu
