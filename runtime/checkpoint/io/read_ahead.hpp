// Reads blocks of a checkpoint's files ahead, in a known order. Four threads read while the caller
// compares and copies earlier blocks. Adjacent blocks of a file form a window, which is read at
// once into a slot of the caller's memory.
//
//   window: waiting --a slot is free--> being read --> ready --> used by the caller --> slot is
//   free
//
// One thread calls. The reading threads end with the object; the destructor waits for running
// reads. An error of a reading thread is thrown to the caller at the first block that it affects.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/checkpoint/format/block_reader.hpp"
#include "runtime/checkpoint/format/manifest.hpp"

namespace sluice {

struct BlockVisit {
  std::size_t file = 0, range = 0;
  std::int64_t block = 0;
  std::int64_t wanted_bytes = 0;  // bytes of the block that the caller uses
};
// Appends a visit. Adjacent visits of one block become one visit.
void add_visit(std::vector<BlockVisit>& visits, const BlockVisit& visit);

// A window: the whole pages of one file that contain the blocks of visits [first, end). `once`:
// this rank uses nearly all bytes, so the read bypasses the page cache. Blocks of which each
// tensor-parallel rank uses some columns are read through the cache.
struct ReadWindow {
  std::size_t file = 0;
  std::int64_t offset = 0, bytes = 0;
  std::size_t first = 0, end = 0;
  bool once = true;
};
// Windows of at most `limit_bytes`. REQUIRES: limit_bytes >= the largest block and two pages. Pure.
[[nodiscard]] std::vector<ReadWindow> plan_windows(const Manifest& manifest,
                                                   std::span<const BlockVisit> visits,
                                                   std::int64_t limit_bytes);

// Memory that keeps a disk busy with blocks of this length: eight slots of two blocks and two
// pages.
[[nodiscard]] std::int64_t read_ahead_bytes(std::int64_t block_bytes);

class ReadAhead {
 public:
  // `memory` is page-aligned. `memory` and `reader` must outlive this object. If `memory` is
  // smaller than two slots of one block, each block is read when block() asks for it.
  ReadAhead(BlockReader& reader, std::vector<BlockVisit> visits, std::span<std::byte> memory);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of the next visit's block, or of the last visit's block again; valid until the next
  // call. Throws the errors of BlockReader::block; an IoError names tensor and offset. After an
  // error the caller may ask for later visits.
  [[nodiscard]] std::span<const std::byte> block(std::size_t file, std::size_t range,
                                                 std::int64_t block);

 private:
  struct Slot {
    std::byte* memory = nullptr;
    // written by the reading thread, then used by the caller
    std::int64_t got = 0;
    std::exception_ptr error;
    bool ready = false;  // guarded by mutex_
  };
  void start_threads();
  void run();
  void fill(const ReadWindow& window, Slot& slot);
  void enter_window();
  [[nodiscard]] std::span<const std::byte> checked_bytes();

  // constant
  BlockReader& reader_;
  const std::vector<BlockVisit> visits_;
  std::vector<ReadWindow> windows_;

  // used by the caller
  std::vector<Slot> slots_;  // empty: blocks are read without windows
  std::size_t next_visit_ = 0, window_ = 0;
  bool any_ = false, checked_ = false;  // state of visit next_visit_ - 1

  std::mutex mutex_;  // guards the members below
  std::condition_variable room_, ready_;
  std::size_t next_window_ = 0;  // the next window to read
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace sluice
