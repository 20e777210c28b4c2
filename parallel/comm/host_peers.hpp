// The ranks of a host communicator as one of them sees them: phases, failures, and their memory.
//
// A phase is a point that every rank comes to; it is numbered, and each rank's counter in the
// shared segment says how far it is. Who waits looks ten times a second whether the others still
// live. Internal to comm.
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
#include "parallel/comm/host_segment.hpp"

namespace sluice {

// What went wrong between two ranks; the communicator adds operation, group, number and rank.
struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How ranks find each other: texts by key, common to the group. get waits until the key is set.
struct HostRendezvous {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;
};

enum class HostCopy {
  kAuto,    // direct where the kernel lets every rank read every other, bounce otherwise
  kBounce,  // over buffers in the shared segment, an extra copy
};

// Work of this length (a few ms) is done between two looks at whether the operation was aborted.
inline constexpr std::int64_t kHostStretchBytes = 8LL << 20;

// begin_operation, advance, read, map: one thread. fail, interrupt, close: any thread.
class HostPeers {
 public:
  // Collective: returns when all ranks are here. Throws HostError, IoError.
  HostPeers(const CommOptions& options, HostRendezvous rendezvous, HostCopy copy);
  ~HostPeers();

  // Whether read() may be used: the same answer on all ranks.
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const HostSegment& segment() const { return segment_; }

  void begin_operation() { deadline_ = Clock::now() + options_.timeout; }
  // The rank's record of the operation; valid for the others from the next phase on, until they
  // have come to that of the next operation.
  [[nodiscard]] HostRecord& next_record();
  [[nodiscard]] const HostRecord& record_of(int rank) const;

  // This rank comes to the next phase.
  void arrive();
  // Waits until all others have come to it too. HostError: timeout, a rank that failed, closed or
  // died, or this one was interrupted.
  void await_all();
  void advance() {
    arrive();
    await_all();
  }

  // The concatenation of `remote` (of `rank`'s memory) arrives at `to`.
  void read(int rank, char* to, std::span<iovec> remote);
  void read(int rank, char* to, const void* from, std::int64_t bytes);

  // Makes the table of `rank`'s pieces name this process's memory, where all of them lie in blocks
  // that can be mapped; false, and no change, elsewhere.
  [[nodiscard]] bool map(int rank, std::vector<HostPiece>& table);

  // From memory that map() named to this process's own.
  void copy_mapped(char* to, const char* from, std::int64_t bytes);
  // HostError where interrupt() was called.
  void check_interrupted() const;

  // Ends the group: the others' waits throw, naming `why`. The first of these calls counts.
  void fail(const std::string& why) noexcept { leave(HostState::kFailed, why); }
  void interrupt() noexcept;  // as fail, and what this rank waits in throws soon
  void close() noexcept { leave(HostState::kClosed, ""); }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] static HostSegment meet(const CommOptions& options, HostRendezvous& rendezvous);
  void introduce();
  [[nodiscard]] bool can_read_all();
  [[nodiscard]] bool has_come(int rank) const;
  void await(int rank);
  void check_open() const;
  void check_alive() const;
  [[noreturn]] void time_out() const;
  void leave(HostState state, const std::string& why) noexcept;
  [[nodiscard]] HostSlot& own() const { return segment_.slot(options_.rank); }

  const CommOptions options_;
  HostRendezvous rendezvous_;  // of rank 0: keeps the server
  const std::uint64_t probe_;
  const std::chrono::microseconds spin_;
  HostSegment segment_;
  bool direct_ = false;
  std::uint32_t phase_ = 0;
  std::uint32_t records_ = 0;
  HostMappings mappings_;
  Clock::time_point deadline_;

  std::atomic<bool> interrupted_{false};
  std::mutex leaving_;
};

}  // namespace sluice
