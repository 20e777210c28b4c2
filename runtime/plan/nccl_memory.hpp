// An upper bound of the device memory that NCCL's buffers take beside libtorch's allocator. Pure.
//
// Groups exchange by sends and receives (parallel/comm/nccl_bridge.cpp). From the sources of NCCL
// 2.28, each channel of a group has for each peer
//   on the same host   the buffers of the protocols Simple, LL128 and LL: 4, 4.7 and 0.5 MiB
//                      (computeBuffSizes in src/init.cc). They lie at the receiver; where GPUs read
//                      each other, Simple's lies at the sender. Both ends have a header, and round
//                      up to 2 MiB (src/transport/p2p.cc): 10 and 2, or 6 and 6 MiB
//   on another host    no buffer of its own: a group's channels share 16 chunks of 128 KiB each for
//                      sends and as many for receives (sharedNetBuffers in src/transport/net.cc)
// A group has as many channels to each peer as parallel/comm/nccl_link.hpp allows where NVLink
// connects all GPUs of a host. Without NVLink it has two, so the bound is far too high there.
#pragma once

#include <cstdint>

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Of one rank. `ranks_of_host`: ranks fill hosts in order (parallel/mesh.hpp).
[[nodiscard]] std::int64_t nccl_buffer_bytes(const StepShape& shape, int ranks_of_host);

}  // namespace sluice
