#include "runtime/plan/nccl_memory.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "parallel/comm/nccl_link.hpp"

namespace sluice {
namespace {

// Of a channel, for a peer on the same host. 6 at the sender if GPUs read each other, and then 6
// at the receiver; a rank that does both has 12 in either case.
constexpr std::int64_t kSendBytes = 6 * kMiB;
constexpr std::int64_t kReceiveBytes = 10 * kMiB;
constexpr std::int64_t kBothBytes = 12 * kMiB;
// Of a channel and a direction, for all peers on other hosts: 16 chunks of 128 KiB.
constexpr std::int64_t kNetBytes = 2 * kMiB;

// A group of `size` ranks, each `stride` ranks from the next, that exchange with each other.
std::int64_t group_bytes(int size, int stride, int ranks_of_host) {
  if (size == 1) return 0;
  const int here = std::clamp(ranks_of_host / stride, 1, size);
  return kGroupChannels *
         ((here - 1) * kBothBytes + (here < size ? 2 * kNetBytes : std::int64_t{0}));
}

}  // namespace

std::int64_t nccl_buffer_bytes(const StepShape& shape, int ranks_of_host) {
  const PipelineShape& pipe = shape.pipeline;
  const int stride = shape.tensor * shape.dp;  // between the stages' ranks
  std::int64_t bytes = group_bytes(shape.tensor, 1, ranks_of_host) +
                       group_bytes(shape.dp, shape.tensor, ranks_of_host);
  if (pipe.stages == 1) return bytes;
  const bool same_host = ranks_of_host > stride;
  const bool wraps = pipe.virtual_stages() > 1;
  const int neighbours = (shape.begins_model() && !wraps ? 0 : 1) +  // the stage before
                         (shape.ends_model() && !wraps ? 0 : 1);     // the stage behind
  // To each neighbour a link sends, from each a link receives.
  bytes += neighbours * kLinkChannels * (same_host ? kSendBytes + kReceiveBytes : 2 * kNetBytes);
  const bool tied = std::any_of(shape.groups.begin(), shape.groups.end(),
                                [](const auto& group) { return group.at_ends; });
  if (tied) bytes += group_bytes(2, stride * (pipe.stages - 1), ranks_of_host);
  return bytes;
}

}  // namespace sluice
