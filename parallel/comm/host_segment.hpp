// The memory that the ranks of a host communicator share: who they are, how far each has come, what
// it called last, and the bounce buffers of ranks that may not read each other's memory.
//
// It is a memfd that the others map through /proc/<process of rank 0>/fd: it has no name, so
// nothing is left behind however the ranks end. Pages are taken when first written. Internal to
// comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "parallel/comm/host_memory.hpp"

namespace sluice {

enum class HostState : std::uint32_t { kOpen, kClosed, kFailed };
enum class HostOp : std::uint32_t {
  kValues,
  kBarrier,
  kReduceScatter,
  kAllGather,
  kSend,
  kReceive
};

inline constexpr std::size_t kHostValues = 512;              // of one round of all_gather_values
inline constexpr std::int64_t kHostBounceBytes = 2LL << 20;  // of one rank

// Where a piece of an operation begins in its rank's memory, and the way to the next rank's share.
struct HostPiece {
  const char* input = nullptr;
  std::int64_t stride_bytes = 0;
  HostRegion region;  // that holds all of it
};

// What a rank has called.
struct HostRecord {
  HostOp op = HostOp::kBarrier;
  DType dtype = DType::kFloat32;
  std::int64_t pieces = 0;
  std::int64_t elems = 0;  // of all pieces, or values, or bytes of a transfer
  std::uint64_t cut = 0;   // a hash of the pieces' sizes
  const HostPiece* table = nullptr;
  double values[kHostValues];
};

// Written by its rank, read by all; what is not atomic is published by `arrived`.
struct alignas(64) HostSlot {
  std::atomic<std::uint32_t> arrived;   // phases this rank has come to; the others' futex
  std::atomic<std::uint32_t> sleepers;  // ranks that sleep on it: nobody to wake at 0
  std::atomic<HostState> state;
  char why[244];  // of kFailed, set before it

  std::uint64_t process_start = 0;
  std::atomic<std::int32_t> process;     // 0: not here yet; set after process_start
  const std::uint64_t* probe = nullptr;  // holds probe_value in the rank's own memory
  std::uint64_t probe_value = 0;
  bool reads_all = false;  // this rank can read the memory of every other
  // Two, used in turn: a record is written anew only when all ranks have come to the one after it,
  // so have read it.
  HostRecord records[2];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class HostSegment {
 public:
  // Throws IoError.
  static HostSegment create(int size);
  static HostSegment attach(int process, int fd, int size);
  HostSegment(HostSegment&& other) noexcept;
  ~HostSegment();

  // Of create, until close_fd: what attach() of the others names.
  [[nodiscard]] int fd() const { return fd_; }
  void close_fd();  // when all have attached

  [[nodiscard]] HostSlot& slot(int rank) const;
  [[nodiscard]] char* bounce(int rank) const;  // kHostBounceBytes

 private:
  HostSegment(int fd, int size);
  int fd_;
  int size_;
  char* base_ = nullptr;
  std::size_t bytes_;
};

// Sleeps while *word == value, at most `patience`; may return early. Words of shared memory.
void futex_sleep(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 std::chrono::nanoseconds patience) noexcept;
void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

// When the process was started (the kernel's clock ticks): tells it from a later one of the same
// number. 0 where there is none, or only its remains.
[[nodiscard]] std::uint64_t process_start(int process);
// Ranks whose texts are equal can share memory: machine, boot and process namespace.
[[nodiscard]] std::string host_identity();

}  // namespace sluice
