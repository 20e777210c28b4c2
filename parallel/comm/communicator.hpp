// Collectives of one group of ranks over Gloo, NCCL, shared memory of one host, or threads of one
// process.
//
// Order: the operations of a communicator run one after another in call order. The call order must
// be equal on all ranks of the group. Asynchronous calls return at once; the operation owns their
// memory until the Ticket is done. One thread at a time may call; any thread may call abort().
//
// Arithmetic: reductions have a fixed order, so results depend neither on the cut of a buffer into
// pieces nor on the transport. Element e of the result is ((g_0 + g_1) + g_2) + ..., where g_r
// comes from rank r. All additions are in fp32, for every input dtype. `accumulate` adds the sum to
// the output last.
//
// Errors: CommError names operation, group, sequence number and rank. An operation fails after the
// timeout. After a failure the group is lost: every later call throws the first error. The
// destructor waits a few seconds for operations in flight and then aborts them.
//
// Sizes are in elements. `void*` is host or device memory, depending on the communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "parallel/comm/reduce_dtype.hpp"
#include "parallel/comm/ticket.hpp"

namespace sluice {

// One piece of a reduce-scatter. The share of rank r is the n elements at input + r * stride. Rank
// r receives the sum of its share over all ranks: output = sum, or output += sum with `accumulate`
// (fp32, n elements). The output may be the rank's own share of an fp32 input, but must not overlap
// other shares.
struct ReduceScatterPiece {
  const void* input = nullptr;
  float* output = nullptr;
  std::int64_t elems = 0;   // n
  std::int64_t stride = 0;  // elements between two ranks' shares; >= n
  bool accumulate = false;
};

// One piece of an all-gather. The n elements at `input` of rank r arrive at output + r * stride on
// every rank. `input` may be this rank's own position in the output.
struct AllGatherPiece {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t elems = 0;
  std::int64_t stride = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Bytes of staging memory that a reduce_scatter of total_elems needs for received shares, and for
  // rounded shares that it sends. Depends on the sizes alone and is bounded, because reduce_scatter
  // works in batches. 0: none is needed.
  [[nodiscard]] virtual std::int64_t reduce_scatter_staging_bytes(std::int64_t total_elems,
                                                                  ReduceDtype dtype) const = 0;

  // True if other ranks read inputs in HostMemory (host_memory.hpp) in place. Equal on all ranks.
  [[nodiscard]] virtual bool maps_host_memory() const { return false; }

  // Each call runs all pieces as one operation. `staging` has reduce_scatter_staging_bytes(sum of
  // elems) bytes.
  [[nodiscard]] virtual Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces,
                                              ReduceDtype dtype, void* staging) = 0;
  [[nodiscard]] virtual Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) = 0;

  // Transfers bytes between the two ranks of a group of two; `peer` is the other rank. Throws Error
  // in other groups. The k-th operation of one rank is the send, the k-th of the other its receive.
  // If the sizes or the kinds do not match, CommError names both calls (NCCL: a timeout). The call
  // returns at once, however late the peer is. The Ticket of a send is done when its memory is free
  // again, which is after the peer has reached the receive. A send behind a receive waits for that
  // receive; a pipeline therefore uses one communicator per direction.
  [[nodiscard]] virtual Ticket send(int peer, const void* data, std::int64_t bytes) = 0;
  [[nodiscard]] virtual Ticket receive(int peer, void* data, std::int64_t bytes) = 0;

  // Gathers control data in host memory, on every device. Blocks. Returns size() x bytes.size()
  // bytes in rank order. REQUIRES: every rank passes the same number of bytes.
  [[nodiscard]] virtual std::vector<std::byte> all_gather_bytes(
      std::span<const std::byte> bytes) = 0;
  [[nodiscard]] std::vector<double> all_gather_values(std::span<const double> values);
  virtual void barrier() = 0;

  // Fails all operations in flight on this rank. Peers fail too, because their connections break.
  // Returns when no operation uses the caller's host memory any more, after at most kDrainGrace.
  virtual void abort() noexcept = 0;
};

// An open connection to a job's rendezvous. Groups that one thread makes in turn share a
// connection: joining a group takes milliseconds, connecting can take seconds (slow name service).
class Rendezvous;

struct CommOptions {
  int rank = 0;
  int size = 1;
  std::string group = "world";            // name in messages and in the rendezvous
  std::string master_addr = "127.0.0.1";  // address at which rank 0 serves the rendezvous
  int master_port = 0;
  // True: this process serves the rendezvous. nullopt: rank 0 of the group serves. A job has one
  // server, so all groups but the world's need false; the world's communicator must outlive them.
  std::optional<bool> serves_rendezvous = std::nullopt;
  std::shared_ptr<Rendezvous> rendezvous = nullptr;  // null: the group opens its own connection
  std::chrono::milliseconds timeout{600'000};
};

// Connects to the rendezvous at master_addr, which another communicator serves. Throws CommError
// after the timeout, and ConfigError if the program was built without libtorch.
[[nodiscard]] std::shared_ptr<Rendezvous> connect_rendezvous(const CommOptions& options);

// Gloo; ranks are processes; host memory. Collective: returns when all ranks have joined. Throws
// CommError after the timeout, for a port in use, and for missing ranks (names them). Throws
// ConfigError if the program was built without libtorch. The network interface is the one that
// reaches master_addr, or GLOO_SOCKET_IFNAME.
[[nodiscard]] std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options);

// Shared memory; ranks are processes of one host; host memory. Ranks read each other's memory with
// process_vm_readv. With SLUICE_HOST_COPY=bounce, or if the kernel refuses the call, they copy
// through shared buffers. Where Yama would forbid it, the call lets every process of the user read
// this process's memory until the process ends. Errors as make_gloo_communicator(); also CommError
// if the ranks are on several hosts.
[[nodiscard]] std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options);

// Shared memory if all ranks are on one host, Gloo otherwise. SLUICE_COMM=host or gloo, equal on
// all ranks, overrides the choice.
[[nodiscard]] std::unique_ptr<Communicator> make_cpu_communicator(const CommOptions& options);

// NCCL; ranks are processes with one GPU each; memory of the current device. Control data uses a
// Gloo group. Throws ConfigError if the program was built without CUDA or if no GPU is visible.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options);

// Ranks are threads of this process; element i belongs to the thread of rank i. A run on one rank
// uses a group of size 1, which touches no network. `group`: name in messages.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout = std::chrono::milliseconds{600'000},
    const std::string& group = "local");

}  // namespace sluice
