#include "runtime/checkpoint/io/read_ahead.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/thread_rank.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"

namespace sluice {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::int64_t kSlots = 8;
constexpr std::int64_t kBlocksOfSlot = 2;

std::int64_t down_to_page(std::int64_t bytes) { return bytes / kPageBytes * kPageBytes; }
std::int64_t up_to_page(std::int64_t bytes) { return down_to_page(bytes + kPageBytes - 1); }

bool same_block(const BlockVisit& a, const BlockVisit& b) {
  return a.block == b.block && a.range == b.range && a.file == b.file;
}

std::int64_t offset_of(const Manifest& manifest, const BlockVisit& visit) {
  return manifest.files[visit.file].ranges[visit.range].offset + visit.block * manifest.block_bytes;
}

std::int64_t length_of(const Manifest& manifest, const BlockVisit& visit) {
  const std::int64_t bytes = manifest.files[visit.file].ranges[visit.range].range.bytes();
  return std::min(manifest.block_bytes, bytes - visit.block * manifest.block_bytes);
}

}  // namespace

void add_visit(std::vector<BlockVisit>& visits, const BlockVisit& visit) {
  if (!visits.empty() && same_block(visits.back(), visit)) {
    visits.back().wanted_bytes += visit.wanted_bytes;
  } else {
    visits.push_back(visit);
  }
}

std::vector<ReadWindow> plan_windows(const Manifest& manifest, std::span<const BlockVisit> visits,
                                     std::int64_t limit_bytes) {
  std::vector<ReadWindow> windows;
  for (std::size_t i = 0; i < visits.size();) {
    const std::int64_t begin = offset_of(manifest, visits[i]);
    ReadWindow window{.file = visits[i].file, .offset = down_to_page(begin), .first = i};
    std::int64_t end = begin;
    std::int64_t wanted = 0;
    for (; i < visits.size() && visits[i].file == window.file; ++i) {
      const std::int64_t next = offset_of(manifest, visits[i]);
      const std::int64_t next_end = next + length_of(manifest, visits[i]);
      const bool fits = up_to_page(next_end) - window.offset <= limit_bytes;
      if (next != end || (!fits && i > window.first)) break;
      end = next_end;
      wanted += visits[i].wanted_bytes;
    }
    window.end = i;
    window.bytes = up_to_page(end) - window.offset;
    window.once = 4 * wanted >= 3 * (end - begin);
    windows.push_back(window);
  }
  return windows;
}

std::int64_t read_ahead_bytes(std::int64_t block_bytes) {
  return kSlots * (kBlocksOfSlot * up_to_page(block_bytes) + 2 * kPageBytes);
}

ReadAhead::ReadAhead(BlockReader& reader, std::vector<BlockVisit> visits,
                     std::span<std::byte> memory)
    : reader_(reader), visits_(std::move(visits)) {
  std::int64_t longest = 0;
  for (const BlockVisit& visit : visits_) {
    longest = std::max(longest, length_of(reader_.manifest(), visit));
  }
  const auto bytes = static_cast<std::int64_t>(memory.size());
  // Prefers large windows to many slots, but has at least one slot per thread.
  const auto slots_of = [&](std::int64_t blocks) {
    return bytes / (blocks * up_to_page(longest) + 2 * kPageBytes);
  };
  std::int64_t slots = std::min(kSlots, slots_of(kBlocksOfSlot));
  if (slots < static_cast<std::int64_t>(kThreads)) {
    slots = std::min(static_cast<std::int64_t>(kThreads), slots_of(1));
  }
  if (slots < 2) return;
  const std::int64_t slot_bytes = down_to_page(bytes / slots);
  windows_ = plan_windows(reader_.manifest(), visits_, slot_bytes);
  slots_.resize(std::min(static_cast<std::size_t>(slots), windows_.size()));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].memory = memory.data() + static_cast<std::int64_t>(i) * slot_bytes;
  }
  if (windows_.size() > 1) start_threads();
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::start_threads() {
  const int rank = thread_rank();
  try {
    threads_.reserve(kThreads);
    while (threads_.size() < kThreads) {
      threads_.emplace_back([this, rank] {
        const ThreadRank works_for(rank);
        run();
      });
    }
  } catch (const std::system_error& error) {  // without any thread the caller reads
    log_warning(
        format_text("reading a checkpoint with {} threads: {}", threads_.size(), error.what()));
  }
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // Window n uses the slot of window n - slots, which the caller has released by then.
    room_.wait(lock, [&] {
      return stopping_ || next_window_ == windows_.size() || next_window_ < window_ + slots_.size();
    });
    if (stopping_ || next_window_ == windows_.size()) return;
    const std::size_t window = next_window_++;
    Slot& slot = slots_[window % slots_.size()];
    lock.unlock();
    fill(windows_[window], slot);
    lock.lock();
    slot.ready = true;
    ready_.notify_one();
  }
}

void ReadAhead::fill(const ReadWindow& window, Slot& slot) {
  slot.got = 0;
  slot.error = nullptr;
  const std::span<std::byte> to(slot.memory, static_cast<std::size_t>(window.bytes));
  try {
    const std::shared_ptr<File> file = reader_.open(window.file);
    slot.got = window.once ? file->read_once(window.offset, to) : file->read(window.offset, to);
  } catch (...) {
    slot.error = std::current_exception();
  }
}

// Makes the window of visit next_visit_ - 1 current. Releases the previous window if the caller has
// just left it.
void ReadAhead::enter_window() {
  const std::size_t visit = next_visit_ - 1;
  std::unique_lock lock(mutex_);
  if (visit == windows_[window_].end) {
    slots_[window_ % slots_.size()].ready = false;
    ++window_;
    room_.notify_all();
  }
  if (visit != windows_[window_].first) return;
  Slot& slot = slots_[window_ % slots_.size()];
  if (threads_.empty()) {
    fill(windows_[window_], slot);
  } else {
    ready_.wait(lock, [&] { return slot.ready; });
  }
}

std::span<const std::byte> ReadAhead::block(std::size_t file, std::size_t range,
                                            std::int64_t block) {
  if (slots_.empty()) return reader_.block(file, range, block);
  const BlockVisit wanted{file, range, block};
  if (!any_ || !same_block(visits_[next_visit_ - 1], wanted)) {
    check(next_visit_ < visits_.size() && same_block(visits_[next_visit_], wanted),
          "blocks in the order that was planned");
    ++next_visit_;
    any_ = true;
    checked_ = false;
    enter_window();
  }
  return checked_bytes();
}

std::span<const std::byte> ReadAhead::checked_bytes() {
  const BlockVisit& visit = visits_[next_visit_ - 1];
  const Slot& slot = slots_[window_ % slots_.size()];
  const std::int64_t offset = offset_of(reader_.manifest(), visit);
  const std::int64_t begin = offset - windows_[window_].offset;
  const std::int64_t length = length_of(reader_.manifest(), visit);
  const std::span<const std::byte> bytes(slot.memory + begin, static_cast<std::size_t>(length));
  if (checked_) return bytes;
  if (slot.error) reader_.rethrow(slot.error, visit.file, visit.range, offset);
  const std::int64_t got = std::clamp<std::int64_t>(slot.got - begin, 0, length);
  reader_.compare(visit.file, visit.range, visit.block, bytes.first(static_cast<std::size_t>(got)));
  checked_ = true;
  return bytes;
}

}  // namespace sluice
