// A link between two pipeline stages over NCCL.
#pragma once

#include <memory>

#include "parallel/comm/communicator.hpp"

namespace sluice {

// Channels of a link. A channel is a block of threads of NCCL's kernel and its buffers. A receive
// that is posted early occupies its channels until the peer sends; with NCCL's own choice, up to 32
// for each link, four links could hold most of a card's processors.
inline constexpr int kLinkChannels = 4;

// As make_nccl_communicator() of a group of two, with at most kLinkChannels channels.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_link(const CommOptions& options);

}  // namespace sluice
