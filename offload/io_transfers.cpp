#include "offload/io_transfers.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "offload/io_clock.hpp"

namespace sluice {
namespace {

// Attempts in a row that move nothing. With pauses of 1 ms after the eighth this is about a second.
constexpr int kMostStuck = 1000;
constexpr int kStuckBeforePause = 8;
constexpr double kSlowSeconds = 10;  // without a completion: the log says so

bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(kIoAlignment) == 0;
}

}  // namespace

IoTransfers::IoTransfers(const NvmeOptions& options, const ExtentPlan& plan, IoFiles files,
                         IoBackend& backend, std::vector<IoMemory> memory)
    : options_(options),
      plan_(plan),
      files_(std::move(files)),
      unit_(options.checksums ? options.checksum_bytes : kIoAlignment),
      backend_(backend),
      checksums_(options.checksum_bytes),
      slots_(static_cast<std::size_t>(options.queue_depth)) {
  bounce_ = HostPool().allocate("bounce", options.queue_depth * options.checksum_bytes);
  std::byte* bounce = bounce_.data();
  for (IoSlot& slot : slots_) {
    slot.bounce = bounce;
    bounce += options.checksum_bytes;
    free_.push_back(&slot);
  }
  for (int i = 0; options.checksums && i < plan.extents(); ++i) {
    checksums_.add_extent(plan.extent(i).bytes);
  }
  if (files_.found) checksums_.forget();
  memory.push_back({bounce_.data(), bounce_.bytes()});
  backend_.use_files(files_.descriptors);
  backend_.use_memory(memory);
}

void IoTransfers::start(IoRequest& request) {
  IoSlot& slot = *free_.back();
  slot = {.request = &request, .bounce = slot.bounce};
  if (request.prepare) request.end = std::exchange(request.prepare, nullptr)();
  if (request.extent == IoRequest::kFlush) {
    slot.place.file = static_cast<int>(request.cursor++);
  } else {
    cut(request, slot);
  }
  free_.pop_back();
  ++request.in_flight;
  if (slot.bounced() && slot.writes()) counts_.bounced_bytes += slot.user_end - slot.user_begin;
  submit(slot);
}

// Cuts the next transfer of a request at its cursor. If memory and range are aligned, the transfer
// is up to a block and needs no copy. Otherwise it is at most a grain through the slot's bounce
// buffer.
void IoTransfers::cut(IoRequest& request, IoSlot& slot) const {
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
  request.cursor = slot.user_end;

  const bool covers =
      slot.user_begin == slot.begin && slot.user_end >= std::min(slot.end, extent.bytes);
  if (request.write && !covers) slot.phase = IoSlot::Phase::kFill;
  if (request.write && slot.bounced() && covers) {
    const std::int64_t used = slot.user_end - slot.user_begin;
    std::memcpy(slot.bounce, memory, static_cast<std::size_t>(used));
    std::memset(slot.bounce + used, 0, static_cast<std::size_t>(slot.bytes() - used));
  }
}

void IoTransfers::submit(IoSlot& slot) {
  IoTransfer transfer;
  transfer.tag = static_cast<std::uint64_t>(&slot - slots_.data());
  transfer.write = slot.writes();
  transfer.sync = slot.request->extent == IoRequest::kFlush;
  transfer.file = slot.place.file;
  transfer.offset = slot.place.offset + slot.done;
  transfer.bytes = slot.bytes() - slot.done;
  transfer.memory = slot.memory == nullptr ? nullptr : slot.memory + slot.done;
  backend_.submit(transfer);
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
void IoTransfers::hash_submitted() {
  if (to_hash_.empty()) return;  // wait() flushes the submitted transfers
  backend_.flush();
  const std::int64_t start = now_ns();
  for (const IoSlot* slot : to_hash_) {
    checksums_.record(slot->request->extent, slot->begin, slot->end, slot->memory);
  }
  to_hash_.clear();
  counts_.hash_ns += now_ns() - start;
}

std::span<const IoCompletion> IoTransfers::wait(bool may_sleep) {
  // Often enough to notice a stall in time.
  const double tick_s = std::min(1.0, options_.stall_timeout_s / 4);
  const std::int64_t timeout_ms =
      in_flight_ > 0 ? static_cast<std::int64_t>(tick_s * 1000) + 1 : -1;
  completions_.clear();
  backend_.wait(completions_, may_sleep ? timeout_ms : 0);
  if (abandoned_ || completions_.empty()) return {};
  last_progress_ns_ = now_ns();
  slow_logged_ = false;
  return completions_;
}

void IoTransfers::watch_for_stall() {
  if (in_flight_ == 0) return;
  const double silent_s = static_cast<double>(now_ns() - last_progress_ns_) / 1e9;
  if (silent_s < std::min(kSlowSeconds, options_.stall_timeout_s)) return;
  const std::string silence = "no answer from " + files_.paths.front() + " for " +
                              std::to_string(static_cast<int>(silent_s)) + " s, " +
                              std::to_string(in_flight_) + " transfers in flight";
  if (silent_s >= options_.stall_timeout_s) {
    throw IoError(silence + ": the NVMe device or its mount hangs (see dmesg)",
                  files_.paths.front(), ETIMEDOUT);
  }
  if (!std::exchange(slow_logged_, true)) log_warning(silence + ": the step waits for it");
}

void IoTransfers::abandon() {
  abandoned_ = true;
  in_flight_ = 0;
  for (IoSlot& slot : slots_) {
    // A second failure must not find requests that have been freed since the first.
    if (IoRequest* const request = std::exchange(slot.request, nullptr)) request->in_flight = 0;
  }
  bounce_.leak();  // the kernel may still write to this memory
}

IoSlot& IoTransfers::take(const IoCompletion& completion) {
  IoSlot& slot = slots_.at(static_cast<std::size_t>(completion.tag));
  if (--in_flight_ == 0) counts_.busy_ns += now_ns() - busy_since_ns_;
  return slot;
}

IoRequest& IoTransfers::release(IoSlot& slot) {
  free_.push_back(&slot);
  --slot.request->in_flight;
  return *std::exchange(slot.request, nullptr);
}

bool IoTransfers::advance(IoSlot& slot, std::int64_t result) {
  const bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !again) {
    fail_transfer(slot, static_cast<int>(-result),
                  result == -ENOSPC ? "the disk is full although its space was reserved"
                                    : "the device or its mount has failed (see dmesg)");
  }
  const bool flushes = slot.request->extent == IoRequest::kFlush;
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
  return false;
}

bool IoTransfers::finish(IoSlot& slot) {
  IoRequest& request = *slot.request;
  if (slot.writes()) return true;
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
  if (!request.write) return true;
  slot.phase = IoSlot::Phase::kMove;
  slot.done = slot.stuck = 0;
  submit(slot);
  return false;
}

void IoTransfers::verify(const IoSlot& slot) const {
  const auto at =
      checksums_.first_mismatch(slot.request->extent, slot.begin, slot.end, slot.memory);
  if (!at) return;
  IoSlot grain = slot;
  grain.place.offset += *at - slot.begin;
  grain.begin = *at;
  grain.end = std::min(slot.end, *at + options_.checksum_bytes);
  std::string why = "its checksum is not that of what was written";
  if (files_.found) {
    why +=
        "; if a former run wrote it, the image in offload.nvme_path is damaged: go on from a "
        "checkpoint, with --resume and its folder";
  }
  fail_transfer(grain, EIO, why);
}

void IoTransfers::fail_transfer(const IoSlot& slot, int error, const std::string& why) const {
  const std::string& path = files_.paths.at(static_cast<std::size_t>(slot.place.file));
  const int extent = slot.request->extent;
  std::string what = "flushing " + path;
  if (extent != IoRequest::kFlush) {
    what = (slot.writes() ? "writing " : "reading ") + std::to_string(slot.bytes()) + " bytes of " +
           plan_.extent(extent).name + " at its offset " + std::to_string(slot.begin) + ", file " +
           path + " at offset " + std::to_string(slot.place.offset);
  }
  throw IoError(
      what + ": " + std::strerror(error) + " (errno " + std::to_string(error) + "): " + why, path,
      error);
}

}  // namespace sluice
