// The messages of each NCCL communicator in their order. A real NCCL waits for peers and hangs
// where two ranks disagree; the null NCCL does not wait, so a test compares the ranks' orders
// afterwards (tests/gpu/channels.py). Thread-safe.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace null_gpu {

// This process's end of a communicator. `id` is equal on its ranks and on no other communicator.
struct Channel {
  std::string id;
  int rank = 0, size = 1;
};

// `peer`: a rank of the communicator; -1: a collective operation of all its ranks.
void note_message(const Channel& channel, const char* kind, int peer, std::size_t bytes);
// The messages of the calling thread since the last call are a group.
void note_group();

// "channels" of the report: for each communicator its groups, and their order as indices.
void write_channels(std::ostream& out);

}  // namespace null_gpu
