// Named extents of one rank on NVMe, read and written asynchronously.
//
// clang-format off
//   declaring --open()--> open --close()--> closed
//                          |
//                          | an I/O error
//                          v
//                        failed: every pending Ticket and every later call throws the first error
//
//   declaring   add(), register_buffer(), add_image()
//   open        read(), write(), commit_image()
//
//   With options.image the files can outlive the process (nvme_image.hpp):
//
//   declaring --find_image()--> found --adopt()--> open, with the committed contents
//                                     --open()---> open, with new files
// clang-format on
//
// One IO thread per store owns the backend. The thread cuts requests into blocks, keeps up to
// queue_depth transfers in flight over all requests, hashes, checks every result and completes the
// Tickets.
//
// Order: two requests that overlap, at least one of them a write, run in call order, so a read sees
// the bytes of every earlier write. All other requests may overtake each other.
// Contents: bytes that were never written read as zero. Padding has no meaning.
// Alignment: any offset and length works. No copy is made if the memory lies at a multiple of
// kIoAlignment, the range begins at a multiple of grain_bytes(), and the range ends at a multiple
// of grain_bytes() or at the padded end of the extent.
//
// Threads: while the store is open, any thread may call read, write, drain, failed and stats. One
// thread makes all other calls. Sizes and offsets are bytes. ZeRO-Infinity, section 6 (infinity
// offload engine).
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

// Alignment of memory, offsets and lengths under O_DIRECT.
inline constexpr std::int64_t kIoAlignment = 4096;

enum class IoEngine { kAuto, kUring, kThreads };  // kAuto: io_uring, else threads with a warning
// kDirect refuses a file system without O_DIRECT. kDirectOrBuffered warns and uses the page cache,
// whose memory no budget counts. kBuffered is for tests.
enum class IoCache { kDirect, kDirectOrBuffered, kBuffered };

struct NvmeOptions {
  std::vector<std::string> paths;   // directories, one per device; blocks are striped over them
  std::string run_id;               // the same for all ranks of a run
  int rank = 0;                     // global rank; part of the file names
  std::int64_t capacity_bytes = 0;  // memory.nvme of this rank; 0: limited by free space only
  std::int64_t block_bytes = kMiB;  // largest transfer, and the stripe; a multiple of 4 KiB
  std::int64_t checksum_bytes = 128 * kKiB;  // bytes of a grain (one hash); divides block_bytes
  int queue_depth = 32;                      // transfers in flight over all requests
  bool checksums = true;                     // hash every write, verify every read (checksums.hpp)
  IoCache cache = IoCache::kDirect;
  IoEngine engine = IoEngine::kAuto;
  double stall_timeout_s = 120;  // IoError if no transfer completes for this long
  bool image = false;            // keep committed files for a later process
  int ranks = 1;                 // of the run; with `image`: files of ranks below may be its parts
  bool spares_images = false;    // without `image`: refuse to remove an image that is found
  // Wraps the backend. Empty: the store uses its own backend.
  std::function<std::unique_ptr<IoBackend>(std::unique_ptr<IoBackend>)> wrap_backend = {};
};

struct NvmeStats {
  std::int64_t read_bytes = 0, written_bytes = 0;  // moved by transfers, padding included
  std::int64_t bounced_bytes = 0;                  // bytes copied through a bounce buffer
  std::int64_t requests = 0, transfers = 0, retries = 0;
  std::int64_t busy_ns = 0;  // time with at least one transfer in flight
  std::int64_t hash_ns = 0;
  int in_flight_peak = 0;
};

class NvmeStore {
 public:
  explicit NvmeStore(NvmeOptions options);  // throws ConfigError; touches no file
  ~NvmeStore();                             // calls close() and logs its error
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  // Declares an extent. `tag` groups extents in bytes_by_tag() and in budget errors. Names are
  // unique. REQUIRES: declaring, bytes > 0.
  ExtentId add(std::string tag, std::string name, std::int64_t bytes);
  // Offers memory of later requests, which the kernel then pins once instead of at each transfer.
  // If the kernel refuses (memlock limit), requests still work and the log says so. The memory must
  // outlive the store. REQUIRES: declaring.
  void register_buffer(void* memory, std::int64_t bytes);

  // Locks the directories, removes files of dead runs, checks free space, reserves space and writes
  // headers. Throws BudgetError if the extents exceed capacity_bytes (names the largest tags) or
  // the free space (names the path and the missing bytes). Throws IoError if O_DIRECT is refused or
  // another run uses a directory (names the run).
  void open();

  // Neither function blocks on I/O. The memory must stay valid until the Ticket is done; the memory
  // of a write must also stay unchanged. Ticket::wait throws IoError with file, offset and errno.
  [[nodiscard]] Ticket read(ExtentId extent, std::int64_t offset, void* into, std::int64_t bytes);
  [[nodiscard]] Ticket write(ExtentId extent, std::int64_t offset, const void* from,
                             std::int64_t bytes);

  // --- an image (nvme_image.hpp). REQUIRES: options.image ---
  // Declares an image and its records. `places`: pairs of extents of equal size. `layout`: text
  // that must be equal in a run that adopts the image. REQUIRES: declaring; called once.
  void add_image(std::vector<ImagePair> places, const std::string& layout);
  // Locks the directories, as open() does, and reads the files of this rank without changing them.
  // Throws BudgetError if the extents exceed capacity_bytes, and IoError if another run uses a
  // directory (names the run). REQUIRES: declaring; called once.
  [[nodiscard]] FoundImage find_image();
  // Removes the found image, which will not be adopted. All ranks call this before any rank calls
  // open(), so that open() counts the space as free. REQUIRES: find_image() has returned on all
  // ranks of the host.
  void remove_found_image();
  // Opens the store in place of open(). The current places hold the bytes of found version
  // `version`; newer versions are removed. All other extents have undefined contents. Throws
  // IoError.
  void adopt(std::size_t version);
  // Commits place `place` (0 or 1) of all pairs. Once the Ticket is done, the committed bytes
  // survive the end of the process and a loss of power. REQUIRES: open; the Tickets of all writes
  // to this place and of the previous commit are done; no write to this place until the new Ticket
  // is done.
  [[nodiscard]] Ticket commit_image(std::int64_t step, int place, std::string state);
  // Voids all commits: no run can resume from the image until the next commit. Blocks. REQUIRES:
  // the Ticket of the previous commit is done (both use the record's memory).
  void withdraw_image();
  // Marks the image as no longer needed: close() removes the files.
  void end_image();

  // Waits until no request is outstanding. Throws the store's error.
  void drain();
  // Waits for all requests, removes the files and releases the locks. The files of an image that
  // was committed and not ended stay. Throws the store's error after the clean-up. A second call
  // does nothing.
  void close();

  [[nodiscard]] std::int64_t size_of(ExtentId extent) const;           // as declared
  [[nodiscard]] static std::int64_t padded_bytes(std::int64_t bytes);  // size on disk
  [[nodiscard]] std::int64_t grain_bytes() const;
  [[nodiscard]] std::int64_t total_bytes() const;  // all extents, padded
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> bytes_by_tag() const;
  [[nodiscard]] bool failed() const;
  [[nodiscard]] NvmeStats stats() const;
  [[nodiscard]] std::string description() const;  // "io_uring, O_DIRECT, 2 paths, 1.00 MiB x 32"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
