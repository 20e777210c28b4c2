// The shared segment of a host communicator: for each rank its process, its phase counter and its
// last call. Also the bounce buffers of ranks that may not read each other's memory.
//
// The segment is a memfd of rank 0, which the other ranks open through /proc/<process>/fd. It has
// no name in a file system, so nothing is left behind however the ranks end. Pages are allocated at
// the first write. Internal to comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/posix/descriptor.hpp"
#include "base/posix/map.hpp"
#include "parallel/comm/host/host_memory.hpp"
#include "parallel/comm/reduce_dtype.hpp"

namespace sluice {

enum class HostState : std::uint32_t { kOpen, kClosed, kFailed };
enum class HostOp : std::uint32_t { kBytes, kBarrier, kReduceScatter, kAllGather, kSend, kReceive };

inline constexpr std::size_t kHostControlBytes = 4096;       // per round of all_gather_bytes
inline constexpr std::int64_t kHostBounceBytes = 2LL << 20;  // per rank

// One piece of an operation in the memory of its rank.
struct HostPiece {
  const char* input = nullptr;
  std::int64_t stride_bytes = 0;  // between the shares of two ranks
  HostRegion region;              // the HostMemory block that contains the piece
};

// The call of one rank.
struct HostRecord {
  HostOp op = HostOp::kBarrier;
  ReduceDtype dtype = DType::kFloat32;
  std::int64_t pieces = 0;
  std::int64_t elems = 0;  // sum over all pieces; or bytes
  std::uint64_t cut = 0;   // hash of the sizes of the pieces
  const HostPiece* table = nullptr;
  std::byte bytes[kHostControlBytes];
};

// One rank writes its slot, all ranks read it. `arrived` publishes the fields that are not atomic.
struct alignas(64) HostSlot {
  std::atomic<std::uint32_t> arrived;   // phases that this rank has reached; futex of the waiters
  std::atomic<std::uint32_t> sleepers;  // ranks that sleep on `arrived`; 0: no wake-up is needed
  std::atomic<HostState> state;
  char why[244];  // reason of kFailed; written before `state`

  std::uint64_t process_start = 0;
  std::atomic<std::int32_t> process;     // 0: has not joined; written after process_start
  const std::uint64_t* probe = nullptr;  // address of probe_value in the rank's own memory
  std::uint64_t probe_value = 0;
  bool reads_all = false;  // this rank can read the memory of every other rank
  // The two records take turns. A rank rewrites a record only after all ranks have reached the
  // phase of the following record, so all ranks have read it.
  HostRecord records[2];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class HostSegment {
 public:
  // Throws IoError.
  static HostSegment create(int size);
  static HostSegment attach(int process, int fd, int size);

  // After create() and before close_fd(): the number that other ranks pass to attach().
  [[nodiscard]] int fd() const { return file_.get(); }
  void close_fd() { file_.reset(); }  // called when all ranks have attached

  [[nodiscard]] HostSlot& slot(int rank) const;
  [[nodiscard]] char* bounce(int rank) const;  // kHostBounceBytes

 private:
  HostSegment(Descriptor file, int size);
  Descriptor file_;
  int size_;
  MappedPages pages_;
};

// Sleeps while word == value, at most `patience`; may return early. For words in shared memory.
void futex_sleep(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 std::chrono::nanoseconds patience) noexcept;
void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

// Start time of the process in kernel clock ticks; distinguishes the process from a later one with
// the same number. 0 if no such process exists or it is a zombie.
[[nodiscard]] std::uint64_t process_start(int process);
// Machine, boot and process namespace as text. Ranks with equal texts can share memory.
[[nodiscard]] std::string host_identity();

}  // namespace sluice
