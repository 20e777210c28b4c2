// One rank's view of the other ranks of a host communicator: phases, failures, memory.
//
// A phase is a numbered point that every rank reaches. Each rank has a counter in the shared
// segment with the number of phases that it has reached. A waiting rank checks ten times per second
// whether the other processes are alive. Internal to comm.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/host/host_segment.hpp"

namespace sluice {

// A failure between two ranks. The communicator adds operation, group, sequence number and rank.
struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A key-value store that the group shares. get() waits until the key is set.
struct HostRendezvous {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;
};

enum class HostCopy {
  kAuto,    // direct reads if the kernel lets every rank read every other rank, else kBounce
  kBounce,  // through buffers in the shared segment; one more copy
};

// Bytes that are moved (a few ms) between two checks whether the operation was aborted.
inline constexpr std::int64_t kHostStretchBytes = 8LL << 20;

// One thread calls begin_operation, publish, advance, table_of, read and map. Any thread may call
// fail, interrupt and close.
class HostPeers {
 public:
  // Collective: returns when all ranks have joined. Throws HostError, IoError.
  HostPeers(const CommOptions& options, HostRendezvous rendezvous, HostCopy copy);
  ~HostPeers();

  // True if read() may be used. Equal on all ranks.
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const HostSegment& segment() const { return segment_; }

  void begin_operation() { deadline_ = Clock::now() + options_.timeout; }
  // This rank's record of the operation. Other ranks may read it from the next phase until they
  // reach the phase of the next operation.
  [[nodiscard]] HostRecord& next_record();
  [[nodiscard]] const HostRecord& record_of(int rank) const;
  // Makes `table` the record's table. It stays in place until the next publish(), also if the
  // operation fails: another rank may be reading it.
  const std::vector<HostPiece>& publish(HostRecord& record, std::vector<HostPiece> table);

  // Reaches the next phase.
  void arrive();
  // Waits until all other ranks have reached this phase. Throws HostError on timeout, if another
  // rank failed, closed or died, or if interrupt() was called.
  void await_all();
  void advance() {
    arrive();
    await_all();
  }

  // The table that `rank` has published, with addresses in its memory. Throws HostError if the rank
  // has left the group: then its table may be gone. REQUIRES: direct().
  [[nodiscard]] std::vector<HostPiece> table_of(int rank, std::size_t pieces);

  // Copies the ranges `remote` of the memory of `rank`, one after another, to `to`.
  void read(int rank, char* to, std::span<iovec> remote);
  void read(int rank, char* to, const void* from, std::int64_t bytes);

  // Maps the blocks of the pieces of `rank` and replaces the addresses in `table` by addresses in
  // this process. Returns false, without a change, unless all pieces lie in blocks that can be
  // mapped.
  [[nodiscard]] bool map(int rank, std::vector<HostPiece>& table);

  // Copies from memory that map() has mapped.
  void copy_mapped(char* to, const char* from, std::int64_t bytes);
  // Throws HostError if interrupt() was called.
  void check_interrupted() const;

  // Ends the group: the waits of other ranks throw and name `why`. Only the first call has an
  // effect.
  void fail(const std::string& why) noexcept { leave(HostState::kFailed, why); }
  void interrupt() noexcept;  // as fail(); also makes a wait of this rank throw soon
  void close() noexcept { leave(HostState::kClosed, ""); }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] static HostSegment meet(const CommOptions& options, HostRendezvous& rendezvous);
  void introduce();
  [[nodiscard]] bool can_read_all();
  [[nodiscard]] bool has_reached(int rank) const;
  void await(int rank);
  void check_open() const;
  void check_member(int rank) const;
  void check_alive() const;
  [[noreturn]] void time_out() const;
  void leave(HostState state, const std::string& why) noexcept;
  [[nodiscard]] HostSlot& own() const { return segment_.slot(options_.rank); }

  const CommOptions options_;
  HostRendezvous rendezvous_;  // on rank 0 this keeps the server alive
  const std::uint64_t probe_;
  const std::chrono::microseconds spin_;
  HostSegment segment_;
  bool direct_ = false;
  std::uint32_t phase_ = 0;
  std::uint32_t records_ = 0;
  std::vector<HostPiece> table_;  // of this rank's operation; ~HostPeers closes before it is freed
  HostMappings mappings_;
  Clock::time_point deadline_;

  std::atomic<bool> interrupted_{false};
  std::mutex leaving_;
};

}  // namespace sluice
