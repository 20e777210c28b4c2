// The null NCCL: messages are checked and counted; channels.hpp keeps their order. Where the null
// GPU computes, they carry bytes (messages.hpp). Otherwise what a rank receives stays as it was,
// and no rank waits for another.
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/nccl/channels.hpp"
#include "tests/gpu/null/nccl/messages.hpp"
#include "tests/gpu/null/nccl/reduction.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Communicator {
  Channel channel;
  std::shared_ptr<Exchange> exchange;  // null where nothing is carried
  std::unique_ptr<CardClaim> card;
};

Communicator& of(ncclComm_t comm) { return *reinterpret_cast<Communicator*>(comm); }

// Of the thread, as ncclGetLastError() has it.
thread_local std::string last_error;

ncclResult_t refused(ncclResult_t result, const std::string& why) {
  last_error = why;
  fault("NCCL: " + why);
  return result;
}

ncclResult_t joined(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  auto made =
      std::make_unique<Communicator>(Communicator{{id.internal, rank, size}, nullptr, nullptr});
  try {
    int device = 0;
    (void)cudaGetDevice(&device);
    made->card = std::make_unique<CardClaim>(id.internal, device);
  } catch (const std::system_error& error) {
    return refused(ncclInvalidUsage, error.what());
  }
  try {
    if (computes()) made->exchange = std::make_shared<Exchange>(id.internal, rank);
    serve_other_ranks();
  } catch (const std::system_error& error) {
    return refused(ncclSystemError, error.what());
  }
  count_communicator();
  *comm = reinterpret_cast<ncclComm_t>(made.release());
  return ncclSuccess;
}

// The bytes that a rank reads or writes.
struct Range {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

Range input_of(const Operation& operation, const Channel& channel) {
  const std::size_t bytes = operation.count * bytes_of(operation.type);
  const bool reads = operation.kind != Kind::kReceive &&
                     (operation.kind != Kind::kBroadcast || operation.peer == channel.rank);
  if (!reads) return {};
  const bool all = operation.kind == Kind::kReduceScatter;
  return {operation.in, all ? static_cast<std::size_t>(channel.size) * bytes : bytes};
}

Range output_of(const Operation& operation, const Channel& channel) {
  const std::size_t bytes = operation.count * bytes_of(operation.type);
  const bool writes = operation.kind != Kind::kSend &&
                      (operation.kind != Kind::kReduce || operation.peer == channel.rank);
  if (!writes) return {};
  const bool all = operation.kind == Kind::kAllGather;
  return {operation.out, all ? static_cast<std::size_t>(channel.size) * bytes : bytes};
}

// Of the calling thread; groups nest. A call outside a group is a group of its own.
thread_local int group_depth = 0;

void begin_group() { ++group_depth; }

void end_group() {
  if (group_depth == 0) return;
  --group_depth;
  if (group_depth > 0) return;
  note_group();
  enqueue_group();
}

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

ncclResult_t passed(const Operation& operation, ncclComm_t comm, cudaStream_t stream) {
  const auto& [channel, exchange, card] = of(comm);
  const std::string kind = name_of(operation.kind);
  for (const Range& range : {input_of(operation, channel), output_of(operation, channel)}) {
    if (range.bytes > 0 && !is_device_range(range.data, range.bytes)) {
      return refused(ncclInvalidArgument, kind + " of " + std::to_string(range.bytes) +
                                              " bytes that are not on the device");
    }
  }
  if (is_capturing(stream)) return refused(ncclInvalidUsage, "a graph with a " + kind);
  if (exchange && reduces(operation.kind) && !is_reducible(operation.type, operation.op)) {
    return refused(ncclInvalidArgument, kind + " of type " + std::to_string(operation.type) +
                                            " by operation " + std::to_string(operation.op));
  }
  const std::size_t bytes = operation.count * bytes_of(operation.type);
  const bool is_message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  count_work(Work::kMessage, stream);
  count_message(kind.c_str(), bytes);
  begin_group();
  note_message(channel, kind.c_str(), is_message ? operation.peer : -1, bytes);
  if (exchange) post({exchange, channel.rank, channel.size}, operation, stream);
  end_group();
  return ncclSuccess;
}

ncclResult_t with_peer(const Operation& operation, ncclComm_t comm, cudaStream_t stream) {
  const int size = of(comm).channel.size;
  if (operation.peer >= 0 && operation.peer < size) return passed(operation, comm, stream);
  return refused(ncclInvalidArgument, std::string(name_of(operation.kind)) + " with rank " +
                                          std::to_string(operation.peer) + " of a group of " +
                                          std::to_string(size));
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string text =
      std::to_string(::getpid()) + "." + std::to_string(++made) + "." + std::to_string(now);
  *id = {};
  text.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "refused by the null NCCL, which printed the reason";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return joined(comm, size, id, rank);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  return joined(comm, size, id, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t*) {
  return joined(comm, size, ids[0], rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete &of(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;  // as NCCL does
  if (of(comm).exchange) of(comm).exchange->abort();
  return ncclCommDestroy(comm);
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = of(comm).channel.size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = of(comm).channel.rank;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  begin_group();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  end_group();
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return with_peer({Kind::kSend, data, nullptr, count, type, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return with_peer({Kind::kReceive, nullptr, data, count, type, peer}, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return passed({Kind::kAllGather, in, out, count, type}, comm, stream);
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return passed({Kind::kAllReduce, in, out, count, type, -1, op}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return with_peer({Kind::kBroadcast, in, out, count, type, root}, comm, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return with_peer({Kind::kReduce, in, out, count, type, root, op}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return passed({Kind::kReduceScatter, in, out, count, type, -1, op}, comm, stream);
}

}  // extern "C"
