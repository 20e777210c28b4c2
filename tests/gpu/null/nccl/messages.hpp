// NCCL's operations as tasks of their streams, where the null GPU computes. Thread-safe.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>

#include "tests/gpu/null/nccl/exchange.hpp"

namespace null_gpu {

enum class Kind { kSend, kReceive, kAllGather, kAllReduce, kBroadcast, kReduce, kReduceScatter };

[[nodiscard]] const char* name_of(Kind kind);

// One call of NCCL. `count` is the call's own: of a reduce-scatter what a rank receives, of an
// all-gather what it sends.
struct Operation {
  Kind kind = Kind::kSend;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  int peer = -1;  // of a message, or the root of a broadcast or reduce
  ncclRedOp_t op = ncclSum;
};

// A rank's end of a communicator.
struct End {
  std::shared_ptr<Exchange> exchange;
  int rank = 0, size = 1;
};

// Adds the operation to the calling thread's group.
void post(const End& end, const Operation& operation, const void* stream);
// Enqueues the thread's group. Its operations on one communicator and stream are one task: the
// messages move together, in any order.
void enqueue_group();

}  // namespace null_gpu
