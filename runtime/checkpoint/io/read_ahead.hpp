// Blocks of a checkpoint's files in an order that is known before they are asked for, read by four
// threads while the caller compares and copies the ones before. Blocks that follow each other in a
// file are read together: windows, each in a slot of the caller's memory.
//
// window: waiting -> (a slot is free) being read -> ready -> the caller's -> its slot is free
//
// For one thread, the caller's; the reading threads end with the object, also where it is left
// early: then each ends its read under way first. What fails in them is thrown to the caller when
// he comes to the first block that it concerns.
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
  std::int64_t wanted_bytes = 0;  // of the block: the caller has use for so many
};
// Visits of one block that follow each other become one.
void add_visit(std::vector<BlockVisit>& visits, const BlockVisit& visit);

// Visits [first, end), whole pages of one file around their blocks. `once`: nearly all of it is
// wanted here, so that it is not worth a place in the page cache; a block of which each
// tensor-parallel rank takes some columns is.
struct ReadWindow {
  std::size_t file = 0;
  std::int64_t offset = 0, bytes = 0;
  std::size_t first = 0, end = 0;
  bool once = true;
};
// At most `limit_bytes` each, which holds the largest of the blocks and two pages. Pure.
[[nodiscard]] std::vector<ReadWindow> plan_windows(const Manifest& manifest,
                                                   std::span<const BlockVisit> visits,
                                                   std::int64_t limit_bytes);

// What keeps a disk busy with blocks of this length: eight slots of two blocks and two pages.
[[nodiscard]] std::int64_t read_ahead_bytes(std::int64_t block_bytes);

class ReadAhead {
 public:
  // `memory` begins on a page and outlives this, as `reader` does. Where it does not hold two
  // slots of a block, blocks are read one by one, when they are asked for.
  ReadAhead(BlockReader& reader, std::vector<BlockVisit> visits, std::span<std::byte> memory);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of the next visit's block, or once more of the last one's; they stay until the next
  // call. Throws as BlockReader::block, an IoError of a read with tensor and offset; the visits
  // behind it may be asked for all the same.
  [[nodiscard]] std::span<const std::byte> block(std::size_t file, std::size_t range,
                                                 std::int64_t block);

 private:
  struct Slot {
    std::byte* memory = nullptr;
    // of the thread that reads, then the caller's
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

  // the caller's
  std::vector<Slot> slots_;  // empty: without windows
  std::size_t next_visit_ = 0, window_ = 0;
  bool any_ = false, checked_ = false;  // of visit next_visit_ - 1

  std::mutex mutex_;  // guards all below
  std::condition_variable room_, ready_;
  std::size_t next_window_ = 0;  // to be read
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace sluice
