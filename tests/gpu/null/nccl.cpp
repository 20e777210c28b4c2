// The null NCCL: messages are checked and counted, and carry nothing. What a rank receives stays as
// it was. No rank waits for another; channels.hpp keeps the order of their messages.
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "tests/gpu/null/channels.hpp"
#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

Channel& of(ncclComm_t comm) { return *reinterpret_cast<Channel*>(comm); }

ncclResult_t joined(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  count_communicator();
  *comm = reinterpret_cast<ncclComm_t>(new Channel{id.internal, rank, size});
  return ncclSuccess;
}

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

struct Message {
  const char* kind;
  const void* data;
  std::size_t bytes;
  int peer = -1;  // -1: all ranks of the communicator
};

ncclResult_t passed(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  if (message.bytes > 0 && !is_device_range(message.data, message.bytes)) {
    fault(std::string("NCCL: ") + message.kind + " of " + std::to_string(message.bytes) +
          " bytes that are not on the device");
    return ncclInvalidArgument;
  }
  if (is_capturing(stream)) {
    fault(std::string("NCCL: a graph with a ") + message.kind);
    return ncclInvalidUsage;
  }
  count_work(Work::kMessage, stream);
  count_message(message.kind, message.bytes);
  note_message(of(comm), message.kind, message.peer, message.bytes);
  return ncclSuccess;
}

ncclResult_t with_peer(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  if (message.peer >= 0 && message.peer < of(comm).size) return passed(message, comm, stream);
  fault(std::string("NCCL: ") + message.kind + " with rank " + std::to_string(message.peer) +
        " of a group of " + std::to_string(of(comm).size));
  return ncclInvalidArgument;
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
  const std::string text = std::to_string(::getpid()) + "." + std::to_string(++made);
  *id = {};
  text.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "refused by the null NCCL, which printed the reason";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }
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
ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = of(comm).size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = of(comm).rank;
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
  return with_peer({"send", data, count * bytes_of(type), peer}, comm, stream);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return with_peer({"receive", data, count * bytes_of(type), peer}, comm, stream);
}
ncclResult_t ncclAllGather(const void* data, void*, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return passed({"all_gather", data, count * bytes_of(type)}, comm, stream);
}
ncclResult_t ncclAllReduce(const void* data, void*, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return passed({"all_reduce", data, count * bytes_of(type)}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* data, void*, std::size_t count, ncclDataType_t type, int,
                           ncclComm_t comm, cudaStream_t stream) {
  return passed({"broadcast", data, count * bytes_of(type)}, comm, stream);
}

}  // extern "C"
