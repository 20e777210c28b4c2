// Collectives of one group of ranks, over Gloo, NCCL, the memory of one host, or threads of one
// process.
//
// Order: operations of a communicator run one after another, in the order of the calls, which must
// be the same on every rank of the group. Asynchronous calls return at once; the memory they name
// belongs to the operation until its Ticket is done. One thread at a time may call.
//
// Arithmetic: reductions are of a fixed order, so that results do not depend on how a buffer is cut
// into pieces nor on the transport: element e of the result is ((g_0 + g_1) + g_2) + ..., g_r from
// rank r, added in fp32 whatever the input's dtype; `accumulate` adds that sum to the output last.
//
// Errors: CommError names operation, group, sequence number and rank. An operation that takes
// longer than the timeout fails. After a failure every further call throws it again: the group is
// lost. Destroying a communicator waits a few seconds for what is in flight, then aborts it.
//
// Sizes are in elements. `void*` is host or device memory, by the kind of the communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "parallel/comm/ticket.hpp"

namespace sluice {

// Rank r's share of a reduce-scatter is the n elements at input + r * stride, summed over all ranks
// into output (fp32, n elements): output = sum, or output += sum where `accumulate`. The output may
// be the rank's own share of an fp32 input; it must not touch the other shares.
struct ReduceScatterPiece {
  const void* input = nullptr;
  float* output = nullptr;
  std::int64_t elems = 0;   // n
  std::int64_t stride = 0;  // elements between two ranks' shares; >= n
  bool accumulate = false;
};

// Every rank's n elements at `input` arrive at output + r * stride on every rank. `input` may be
// the rank's own place in the output.
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

  // Scratch a reduce_scatter of these pieces needs (received shares that are not yet added), in
  // bytes: a function of the sizes alone, bounded whatever the size (reduce_scatter works in
  // batches). 0 where the implementation needs none of the caller's.
  [[nodiscard]] virtual std::int64_t reduce_scatter_staging_bytes(std::int64_t total_elems,
                                                                  DType input) const = 0;

  // Whether inputs that lie in HostMemory (host_memory.hpp) are read in place by the other ranks:
  // the same answer on all of them.
  [[nodiscard]] virtual bool maps_host_memory() const { return false; }

  // All pieces together as one operation. `staging`: reduce_scatter_staging_bytes(sum of elems)
  // bytes.
  [[nodiscard]] virtual Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces, DType input,
                                              void* staging) = 0;
  [[nodiscard]] virtual Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) = 0;

  // Bytes from one rank of a group of two to the other (Error in other groups): `peer` is the other
  // rank. Operations like the rest, so the other rank's operation of the same number is the
  // receive of this send: where it is of another size, or no receive, CommError names both calls
  // (over NCCL it is a timeout). The call returns at once, however late the peer is; a send is done
  // when its memory is free again, not before the peer has come to the receive. An operation waits
  // for those called before it: so a pipeline uses a communicator a direction, in which no send
  // stands behind a receive.
  [[nodiscard]] virtual Ticket send(int peer, const void* data, std::int64_t bytes) = 0;
  [[nodiscard]] virtual Ticket receive(int peer, void* data, std::int64_t bytes) = 0;

  // Control data in host memory, whatever the device. Blocks. Result: size() x values.size(), by
  // rank. Every rank gives the same number of values.
  [[nodiscard]] virtual std::vector<double> all_gather_values(std::span<const double> values) = 0;
  virtual void barrier() = 0;

  // Makes what is in flight fail, here and (by their broken connections) at the peers. Never
  // throws.
  virtual void abort() noexcept = 0;
};

// An open connection to a job's rendezvous. Groups that one thread makes one after another share
// it: joining each takes milliseconds, connecting can take seconds (a slow name service).
class Rendezvous;

struct CommOptions {
  int rank = 0;
  int size = 1;
  std::string group = "world";            // names the group in messages and in the rendezvous
  std::string master_addr = "127.0.0.1";  // rank 0 serves the rendezvous there
  int master_port = 0;
  // Whether this process serves the rendezvous; nullopt: it does if it is rank 0 of the group. A
  // job has one server: for groups besides the world's, say false (the world's communicator has to
  // outlive them).
  std::optional<bool> serves_rendezvous = std::nullopt;
  std::shared_ptr<Rendezvous> rendezvous = nullptr;  // null: a connection of its own
  std::chrono::milliseconds timeout{600'000};
};

// Connects to the rendezvous at master_addr, which another communicator serves. Throws CommError
// after the timeout; ConfigError where the program was built without libtorch.
[[nodiscard]] std::shared_ptr<Rendezvous> connect_rendezvous(const CommOptions& options);

// Ranks are processes, memory is the host's. Collective: returns when all ranks have come, throws
// CommError after the timeout. A port that is in use, or ranks that never come, are said in words.
// ConfigError where the program was built without libtorch. Interface: the one that reaches
// master_addr, or GLOO_SOCKET_IFNAME.
[[nodiscard]] std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options);

// Ranks are processes of one host, memory is the host's: they read each other's memory
// (process_vm_readv; SLUICE_HOST_COPY=bounce, or a kernel that refuses it: buffers that all map).
// While it lives, and after, any process of the user may read this one's memory where Yama would
// forbid it. Otherwise as make_gloo_communicator. Throws CommError also where the ranks are of
// several hosts.
[[nodiscard]] std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options);

// Ranks are processes, memory is the host's: over that memory where all ranks are of one host, over
// Gloo elsewhere. SLUICE_COMM=host or gloo, the same on all ranks, says which.
[[nodiscard]] std::unique_ptr<Communicator> make_cpu_communicator(const CommOptions& options);

// Ranks are processes with a GPU each, memory is the current device's. Control data goes over a
// Gloo group of its own. Throws ConfigError where the program was built without CUDA or no GPU is
// visible.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options);

// Ranks are threads of this process: communicator i of the result is for rank i's thread. A group
// of size 1 is what a run on one rank uses: no network is touched. `group` names it in messages.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout = std::chrono::milliseconds{600'000},
    const std::string& group = "local");

}  // namespace sluice
