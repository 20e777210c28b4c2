#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "offload/io_clock.hpp"
#include "offload/io_queue.hpp"
#include "offload/io_request.hpp"

namespace sluice {
namespace {

// Attempts in a row that move nothing. With pauses of 1 ms after the eighth this is about a second.
constexpr int kMostStuck = 1000;
constexpr int kStuckBeforePause = 8;

bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(kIoAlignment) == 0;
}

}  // namespace

void IoQueue::start_transfers() {
  while (!free_.empty() && !ready_.empty()) {
    IoRequest& request = *ready_.front();
    Slot& slot = *free_.back();
    slot.request = &request;
    if (request.prepare) request.end = std::exchange(request.prepare, nullptr)();
    if (request.extent == kFlush) {
      cut_flush(request, slot);
    } else if (request.extent == kHeaders) {
      cut_header(request, slot);
    } else {
      cut(request, slot);
    }
    free_.pop_back();
    ++request.in_flight;
    if (request.cursor >= request.end) ready_.pop_front();
    if (slot.bounced() && slot.writes()) counts_.bounced_bytes += slot.user_end - slot.user_begin;
    submit(slot);
  }
}

// Cuts the next transfer of a request at its cursor. If memory and range are aligned, the transfer
// is up to a block and needs no copy. Otherwise it is at most a grain through the slot's bounce
// buffer.
void IoQueue::cut(IoRequest& request, Slot& slot) const {
  const ExtentPlan::Extent& extent = plan_.extent(request.extent);
  const std::int64_t position = request.cursor;
  std::byte* memory = request.memory + (position - request.begin);
  const std::int64_t direct_end =
      request.end == extent.padded ? extent.padded : request.end / unit_ * unit_;
  slot.user_begin = position;
  slot.begin = position / unit_ * unit_;
  slot.place = plan_.place(request.extent, slot.begin);
  if (is_aligned(memory) && slot.begin == position && direct_end > position) {
    slot.end = std::min(direct_end, position + slot.place.contiguous);
    slot.memory = memory;
  } else {
    const std::int64_t last = std::min(round_up(request.end, unit_), extent.padded);
    slot.end =
        std::min({last, slot.begin + options_.checksum_bytes, slot.begin + slot.place.contiguous});
    slot.memory = slot.bounce;
  }
  slot.user_end = std::min(request.end, slot.end);
  slot.done = 0;
  slot.stuck = 0;
  request.cursor = slot.user_end;

  const bool covers =
      slot.user_begin == slot.begin && slot.user_end >= std::min(slot.end, extent.bytes);
  slot.phase = request.write && !covers ? Slot::Phase::kFill : Slot::Phase::kMove;
  if (request.write && slot.bounced() && covers) {
    const std::int64_t used = slot.user_end - slot.user_begin;
    std::memcpy(slot.bounce, memory, static_cast<std::size_t>(used));
    std::memset(slot.bounce + used, 0, static_cast<std::size_t>(slot.bytes() - used));
  }
}

void IoQueue::cut_header(IoRequest& request, Slot& slot) const {
  const std::int64_t file = request.cursor++;
  if (file == 0) files_.encode_headers(request.version, headers_.data());
  slot.begin = slot.user_begin = slot.done = 0;
  slot.end = slot.user_end = ExtentPlan::kHeaderBytes;
  slot.stuck = 0;
  slot.phase = Slot::Phase::kMove;
  slot.place = {static_cast<int>(file), 0, ExtentPlan::kHeaderBytes};
  slot.memory = headers_.data() + file * ExtentPlan::kHeaderBytes;
}

void IoQueue::cut_flush(IoRequest& request, Slot& slot) {
  slot.begin = slot.end = slot.user_begin = slot.user_end = slot.done = 0;
  slot.stuck = 0;
  slot.phase = Slot::Phase::kMove;
  slot.place = {static_cast<int>(request.cursor++), 0, 0};
  slot.memory = nullptr;
}

void IoQueue::submit(Slot& slot) {
  IoTransfer transfer;
  transfer.tag = static_cast<std::uint64_t>(&slot - slots_.data());
  transfer.write = slot.writes();
  transfer.sync = slot.request->extent == kFlush;
  transfer.file = slot.place.file;
  transfer.offset = slot.place.offset + slot.done;
  transfer.bytes = slot.bytes() - slot.done;
  transfer.memory = slot.memory == nullptr ? nullptr : slot.memory + slot.done;
  backend_->submit(transfer);
  if (in_flight_++ == 0) last_progress_ns_ = busy_since_ns_ = now_ns();
  ++counts_.transfers;
  counts_.in_flight_peak = std::max(counts_.in_flight_peak, in_flight_);
  const bool first = slot.done == 0 && slot.stuck == 0;
  if (options_.checksums && transfer.write && first && slot.request->extent >= 0) {
    to_hash_.push_back(&slot);
  }
}

// Hashes the submitted bytes while the device writes them. Completions are read only afterwards, so
// the memory cannot change before it is hashed.
void IoQueue::hash_submitted() {
  if (to_hash_.empty()) return;  // wait() flushes the submitted transfers
  backend_->flush();
  const std::int64_t start = now_ns();
  for (const Slot* slot : to_hash_) {
    checksums_.record(slot->request->extent, slot->begin, slot->end, slot->memory);
  }
  to_hash_.clear();
  counts_.hash_ns += now_ns() - start;
}

void IoQueue::complete(const IoCompletion& completion) {
  Slot& slot = slots_.at(static_cast<std::size_t>(completion.tag));
  if (--in_flight_ == 0) counts_.busy_ns += now_ns() - busy_since_ns_;
  if (failure_) return release(slot);
  try {
    advance(slot, completion.result);
  } catch (...) {
    fail(std::current_exception());
    release(slot);
  }
}

void IoQueue::advance(Slot& slot, std::int64_t result) {
  const bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !again) {
    fail_transfer(slot, static_cast<int>(-result),
                  result == -ENOSPC ? "the disk is full although its space was reserved"
                                    : "the device or its mount has failed (see dmesg)");
  }
  const bool flushes = slot.request->extent == kFlush;
  if (result == 0 && !flushes) {
    fail_transfer(slot, EIO, slot.writes() ? "the device took nothing" : "the file was truncated");
  }
  (slot.writes() ? counts_.written_bytes : counts_.read_bytes) += again ? 0 : result;
  // A short transfer continues at a whole sector, because O_DIRECT accepts no other offset.
  const std::int64_t before = slot.done;
  slot.done += again ? 0 : result;
  if (slot.done >= slot.bytes() && !(flushes && again)) return finish(slot);
  slot.done = slot.done / kIoAlignment * kIoAlignment;
  slot.stuck = slot.done > before ? 1 : slot.stuck + 1;
  ++counts_.retries;
  if (slot.stuck > kMostStuck) {
    fail_transfer(slot, again ? static_cast<int>(-result) : EIO, "it makes no progress");
  }
  if (slot.stuck > kStuckBeforePause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  submit(slot);
}

void IoQueue::finish(Slot& slot) {
  IoRequest& request = *slot.request;
  if (slot.writes()) return release(slot);
  if (options_.checksums) {
    const std::int64_t start = now_ns();
    verify(slot);
    counts_.hash_ns += now_ns() - start;
  }
  if (slot.bounced()) {
    const std::int64_t bytes = slot.user_end - slot.user_begin;
    std::byte* inside = slot.bounce + (slot.user_begin - slot.begin);
    std::byte* outside = request.memory + (slot.user_begin - request.begin);
    std::byte* into = request.write ? inside : outside;
    std::memcpy(into, request.write ? outside : inside, static_cast<std::size_t>(bytes));
    counts_.bounced_bytes += bytes;
  }
  if (!request.write) return release(slot);
  slot.phase = Slot::Phase::kMove;
  slot.done = 0;
  slot.stuck = 0;
  submit(slot);
}

void IoQueue::verify(const Slot& slot) const {
  const auto at =
      checksums_.first_mismatch(slot.request->extent, slot.begin, slot.end, slot.memory);
  if (!at) return;
  Slot grain = slot;
  grain.place.offset += *at - slot.begin;
  grain.begin = *at;
  grain.end = std::min(slot.end, *at + options_.checksum_bytes);
  fail_transfer(grain, EIO,
                files_.found
                    ? "its checksum is not that of what was written; if a former run wrote "
                      "it, the image in offload.nvme_path is damaged: go on from a "
                      "checkpoint, with --resume and its folder"
                    : "its checksum is not that of what was written");
}

void IoQueue::release(Slot& slot) {
  IoRequest& request = *slot.request;
  slot.request = nullptr;
  free_.push_back(&slot);
  if (--request.in_flight == 0 && request.cursor >= request.end) retire(request);
}

void IoQueue::fail_transfer(const Slot& slot, int error, const std::string& why) const {
  const std::string& path = files_.paths.at(static_cast<std::size_t>(slot.place.file));
  if (slot.request->extent == kFlush) {
    throw IoError("flushing " + path + ": " + std::strerror(error) + " (errno " +
                      std::to_string(error) + "): " + why,
                  path, error);
  }
  const bool header = slot.request->extent == kHeaders;
  const std::string name = header ? "the header" : plan_.extent(slot.request->extent).name;
  throw IoError(std::string(slot.writes() ? "writing " : "reading ") +
                    std::to_string(slot.bytes()) + " bytes of " + name + " at its offset " +
                    std::to_string(slot.begin) + ", file " + path + " at offset " +
                    std::to_string(slot.place.offset) + ": " + std::strerror(error) + " (errno " +
                    std::to_string(error) + "): " + why,
                path, error);
}

}  // namespace sluice
