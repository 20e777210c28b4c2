// Named extents of one rank on NVMe, read and written asynchronously.
//
//   declaring --open()--> open --close()--> closed          add(), register_buffer() while
//   declaring;
//                          | an I/O error                   read(), write(), commit() while open
//                          v
//                        failed: every Ticket still out and every later call throws the first error
//
// With options.image the files can outlive the process (nvme_image.hpp has what is kept):
//
//   declaring --find_image()--> found --adopt()--> open         add_image() while declaring
//                                     --open()---> open, anew
//
// One thread per store owns the ring: it cuts requests into blocks of block_bytes, keeps up to
// queue_depth of them in flight over all requests, hashes, checks every result and completes the
// Tickets. Requests whose ranges overlap (one of them a write) run in the order they were made, so
// a read made after a write sees its bytes; all others overtake each other. What was never written
// reads as zero. Any offset and length works; the fast path (no copy) is memory at a multiple of
// kIoAlignment and ranges that begin at a multiple of grain_bytes() and end at one or at
// padded_bytes() of the extent; what comes between and is read is meaningless.
//
// Thread-safe: read, write, commit, stats and error may be called from any thread; open and close
// from one. Sizes and offsets are bytes. ZeRO-Infinity, section 6 (infinity offload engine).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ticket.hpp"
#include "offload/nvme_image.hpp"

namespace sluice {

class IoBackend;

inline constexpr std::int64_t kIoAlignment = 4096;  // of memory, offsets and lengths on O_DIRECT

enum class IoEngine { kAuto, kUring, kThreads };  // kAuto: io_uring, else threads, with a warning
// kDirect refuses a file system without O_DIRECT; kDirectOrBuffered warns and goes on through the
// page cache (its memory is not in the budget); kBuffered is for tests.
enum class IoCache { kDirect, kDirectOrBuffered, kBuffered };

struct NvmeOptions {
  std::vector<std::string> paths;   // directories, one per device; blocks stripe over them
  std::string run_id;               // the same for all ranks of a run
  int rank = 0;                     // global rank: names the files
  std::int64_t capacity_bytes = 0;  // memory.nvme of this rank; 0: what the disks have free
  std::int64_t block_bytes = kMiB;  // largest transfer, and the stripe: n * 4 KiB
  std::int64_t checksum_bytes = 128 * kKiB;  // one hash for so much; divides block_bytes
  int queue_depth = 32;                      // transfers in flight, all requests together
  bool checksums = true;                     // XXH3 in memory, made at write, verified at read
  IoCache cache = IoCache::kDirect;
  IoEngine engine = IoEngine::kAuto;
  double stall_timeout_s = 120;  // nothing came back for so long: IoError
  bool image = false;            // keep what was committed, for another process
  int ranks = 1;                 // of the run; with `image`: whose files may be parts of one
  bool spares_images = false;    // without `image`: refuse to remove one that is found
  // Stands between the store and the kernel; empty: nothing does.
  std::function<std::unique_ptr<IoBackend>(std::unique_ptr<IoBackend>)> wrap_backend = {};
};

struct NvmeStats {
  std::int64_t read_bytes = 0, written_bytes = 0;  // moved by transfers, padding included
  std::int64_t bounced_bytes = 0;                  // of these, copied through an aligned buffer
  std::int64_t requests = 0, transfers = 0, retries = 0;
  std::int64_t busy_ns = 0;  // at least one transfer in flight
  std::int64_t hash_ns = 0;
  int in_flight_peak = 0;
};

class NvmeStore {
 public:
  explicit NvmeStore(NvmeOptions options);  // throws ConfigError; touches no file
  ~NvmeStore();                             // close(), with errors logged
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  // Declares an extent; `tag` groups extents in bytes_by_tag and in the budget's error. A name is
  // used once. REQUIRES: declaring, bytes > 0.
  ExtentId add(std::string tag, std::string name, std::int64_t bytes);
  // Memory that requests will use, to be pinned once and not at each transfer. An offer: where the
  // kernel refuses (memlock), requests work without and the log says so. It must outlive the store.
  void register_buffer(void* memory, std::int64_t bytes);

  // Takes the directories' locks, reclaims what dead runs left, checks free space, preallocates
  // and writes headers. Throws BudgetError (over capacity_bytes: the largest tags; free space: how
  // much is missing where) and IoError (O_DIRECT refused, directory in use: by whom).
  void open();

  // The memory stays the caller's and must stay valid (and, for a write, unchanged) until the
  // Ticket is done. Never blocks on I/O. Ticket::wait throws IoError with file, offset and errno.
  [[nodiscard]] Ticket read(ExtentId extent, std::int64_t offset, void* into, std::int64_t bytes);
  [[nodiscard]] Ticket write(ExtentId extent, std::int64_t offset, const void* from,
                             std::int64_t bytes);
  // Puts `version` into the headers: the data of that version is whole. REQUIRES: the Tickets of
  // its writes are done. Survives the process, not a loss of power (no flush).
  [[nodiscard]] Ticket commit(std::uint64_t version);

  // --- an image (nvme_image.hpp). REQUIRES: options.image ---
  // `places`: pairs of extents of the same size, one of each pair being current. `layout`: what
  // else must be the same for whoever goes on. Declares the records. REQUIRES: declaring, once.
  void add_image(std::vector<ImagePair> places, const std::string& layout);
  // Takes the directories' locks, as open() does, and looks at what lies under this rank's name; it
  // stays as it is. Throws IoError (directory in use: by whom). REQUIRES: declaring, once.
  [[nodiscard]] FoundImage find_image();
  // What was found is not adopted. Before open(), so that no rank takes the room of others' files
  // for missing. REQUIRES: find_image() has ended on all ranks of the host.
  void remove_found_image();
  // In place of open(): extents are what they were when version `at` of what was found was
  // committed; newer versions are gone. What is no current place has no meaning. Throws IoError.
  void adopt(std::size_t at);
  // What the current places (`place` 0 or 1 of all pairs) hold survives this process and a loss of
  // power, once the Ticket is done. REQUIRES: open; the Tickets of all writes to them and of the
  // commit before are done, and they are not written to until this one's is.
  [[nodiscard]] Ticket commit_image(std::int64_t step, int place, std::string state);
  // Nothing can be gone on from until the next commit. Blocks.
  void withdraw_image();
  // The run is over: close() removes the files.
  void end_image();

  // Waits for everything requested so far; throws the store's error.
  void drain();
  // Lets requests end, removes the files (but those of an image that was committed and not ended),
  // releases the locks. Throws the store's error, after having cleaned up. A second call does
  // nothing.
  void close();

  [[nodiscard]] std::int64_t size_of(ExtentId extent) const;           // as declared
  [[nodiscard]] static std::int64_t padded_bytes(std::int64_t bytes);  // what it takes on disk
  [[nodiscard]] std::int64_t grain_bytes() const;
  [[nodiscard]] std::int64_t total_bytes() const;  // all extents, padded
  [[nodiscard]] std::int64_t host_bytes() const;   // memory of the store itself: bounce, hashes
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> bytes_by_tag() const;
  [[nodiscard]] bool failed() const;
  [[nodiscard]] NvmeStats stats() const;
  [[nodiscard]] std::string description() const;  // "io_uring, O_DIRECT, 2 paths, 1 MiB x 32"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
