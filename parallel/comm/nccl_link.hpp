// NCCL communicators of special groups, and the channels of all.
#pragma once

#include <memory>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// Channels of a link. A channel is a block of threads of NCCL's kernel and its buffers. A receive
// that is posted early occupies its channels until the peer sends; with NCCL's own choice, up to 32
// for each link, four links could hold most of a card's processors.
inline constexpr int kLinkChannels = 4;

// Most channels of every other group. A channel keeps 12 MiB of buffers for each peer, and NCCL's
// own choice is up to 32. NCCL counts on 20.6 GB/s a channel over NVLink, so 16 may reach most of
// what an H100's links carry. Not measured. NCCL_MAX_CTAS overrides both numbers.
inline constexpr int kGroupChannels = 16;

// As make_nccl_communicator() of a group of two, with at most kLinkChannels channels. Rank 0 sends
// and rank 1 receives; the other direction is not connected.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_link(const CommOptions& options);

// As make_nccl_communicator(), but NCCL connects at the first operation on device memory. REQUIRES:
// this first operation is the same one on all ranks. For a world whose axes have groups of their
// own: training sends only control data in it, over Gloo.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_world(const CommOptions& options);

}  // namespace sluice
