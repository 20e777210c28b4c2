#include "offload/io_queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "offload/io_clock.hpp"
#include "offload/io_request.hpp"

namespace sluice {
namespace {

constexpr double kSlowSeconds = 10;  // without a completion: the log says so

bool conflict(const IoRequest& a, const IoRequest& b) {
  return (a.write || b.write) && a.cover_begin < b.cover_end && b.cover_begin < a.cover_end;
}

}  // namespace

IoQueue::IoQueue(const NvmeOptions& options, const ExtentPlan& plan, Files files,
                 std::unique_ptr<IoBackend> backend, std::vector<IoMemory> memory)
    : options_(options),
      plan_(plan),
      files_(std::move(files)),
      unit_(options.checksums ? options.checksum_bytes : kIoAlignment),
      backend_(std::move(backend)),
      checksums_(options.checksum_bytes),
      slots_(static_cast<std::size_t>(options.queue_depth)),
      lanes_(static_cast<std::size_t>(plan.extents()) + 1) {
  HostPool pool;
  bounce_ = pool.allocate("bounce", options.queue_depth * options.checksum_bytes);
  headers_ = pool.allocate("headers", plan.files() * ExtentPlan::kHeaderBytes);
  std::byte* bounce = bounce_.data();
  for (Slot& slot : slots_) {
    slot.bounce = bounce;
    bounce += options.checksum_bytes;
    free_.push_back(&slot);
  }
  for (int i = 0; options.checksums && i < plan.extents(); ++i) {
    checksums_.add_extent(plan.extent(i).bytes);
  }
  if (files_.found) checksums_.forget();
  memory.push_back({bounce_.data(), bounce_.bytes()});
  backend_->use_files(files_.descriptors);
  backend_->use_memory(memory);

  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: the IO thread takes no signals
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

IoQueue::~IoQueue() { stop(); }

IoQueue::RequestPtr IoQueue::make_request(int extent, bool write, std::int64_t offset,
                                          std::byte* memory, std::int64_t bytes) const {
  auto request = std::make_shared<IoRequest>();
  request->extent = extent;
  request->write = write;
  request->memory = memory;
  request->begin = request->cursor = offset;
  request->end = offset + bytes;
  request->cover_begin = offset / unit_ * unit_;
  request->cover_end = std::min(round_up(request->end, unit_), plan_.extent(extent).padded);
  return request;
}

IoQueue::RequestPtr IoQueue::make_request_of_files(int kind) const {
  auto request = std::make_shared<IoRequest>();
  request->extent = kind;
  request->write = true;
  request->end = plan_.files();  // counts files, not bytes
  request->cover_end = 1;
  return request;
}

Ticket IoQueue::enqueue(int extent, bool write, std::int64_t offset, std::byte* memory,
                        std::int64_t bytes) {
  const RequestPtr request = make_request(extent, write, offset, memory, bytes);
  return push({&request, 1});
}

Ticket IoQueue::enqueue_headers(std::uint64_t version) {
  const RequestPtr request = make_request_of_files(kHeaders);
  request->version = version;
  return push({&request, 1});
}

Ticket IoQueue::enqueue_flush() {
  const RequestPtr request = make_request_of_files(kFlush);
  return push({&request, 1});
}

Ticket IoQueue::enqueue_record(Record record) {
  const std::array chain = {
      make_request_of_files(kFlush),
      make_request(record.extent, true, 0, record.memory, plan_.extent(record.extent).padded),
      make_request_of_files(kFlush)};
  // The record is written as whole grains, so no grain has to be read and completed first.
  chain[1]->prepare = [this, end = chain[1]->end, fill = std::move(record.fill)] {
    return std::min(end, round_up(fill(checksums_), unit_));
  };
  chain[1]->follows = chain[0].get();
  chain[2]->follows = chain[1].get();
  return push(chain);
}

// Returns the Ticket of the last request.
Ticket IoQueue::push(std::span<const RequestPtr> requests) {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  check(!stopping_, "requests go to an open NVMe store");
  inbox_.insert(inbox_.end(), requests.begin(), requests.end());
  outstanding_ += std::ssize(requests);
  if (std::exchange(asleep_, false)) backend_->wake();
  return Ticket(requests.back());
}

IoQueue::Lane& IoQueue::lane_of(const IoRequest& request) {
  return request.extent < 0 ? lanes_.back() : nth(lanes_, request.extent);
}

void IoQueue::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return outstanding_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void IoQueue::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    backend_->wake();
  }
  thread_.join();
  if (abandoned_) {  // the kernel may still write to these buffers
    bounce_.leak();
    headers_.leak();
  }
}

bool IoQueue::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void IoQueue::rethrow_error() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

NvmeStats IoQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void IoQueue::run() noexcept {
  pthread_setname_np(pthread_self(), "sluice-nvme");
  while (take_inbox()) {
    try {
      start_transfers();
      hash_submitted();
      wait_for_completions();
      watch_for_stall();
    } catch (...) {
      abandon(std::current_exception());
    }
  }
}

bool IoQueue::take_inbox() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ && outstanding_ == 0) return false;
    fresh_.swap(inbox_);
  }
  for (const RequestPtr& request : fresh_) admit(request);
  if (failure_) fail_requests();
  fresh_.clear();
  return true;
}

void IoQueue::admit(const RequestPtr& request) {
  Lane& lane = lane_of(*request);
  const auto wait_for = [&](IoRequest& earlier) {
    earlier.dependents.push_back(request.get());
    ++request->blockers;
  };
  // Both requests of the chain are admitted before a transfer starts, so `follows` is still alive.
  if (request->follows != nullptr) wait_for(*request->follows);
  for (const RequestPtr& earlier : lane) {
    if (earlier.get() != request->follows && conflict(*earlier, *request)) wait_for(*earlier);
  }
  lane.push_back(request);
  if (request->blockers == 0) ready_.push_back(request.get());
}

void IoQueue::retire(IoRequest& request) {
  Lane& lane = lane_of(request);
  const auto entry = std::find_if(lane.begin(), lane.end(),
                                  [&](const RequestPtr& other) { return other.get() == &request; });
  check(entry != lane.end(), "a request that ends is in its lane");
  const RequestPtr kept = std::move(*entry);
  lane.erase(entry);
  if (!failure_) {  // after a failure requests end in any order, and dependents may not exist
    for (IoRequest* dependent : request.dependents) {
      if (--dependent->blockers == 0) ready_.push_back(dependent);
    }
  }
  ++counts_.requests;
  const std::lock_guard lock(mutex_);
  stats_ = counts_;
  request.finish(failure_);
  if (--outstanding_ == 0) idle_.notify_all();
}

void IoQueue::wait_for_completions() {
  // Often enough to notice a stall in time.
  const double tick_s = std::min(1.0, options_.stall_timeout_s / 4);
  std::int64_t timeout_ms = in_flight_ > 0 ? static_cast<std::int64_t>(tick_s * 1000) + 1 : -1;
  {
    const std::lock_guard lock(mutex_);
    if (!inbox_.empty() || (stopping_ && outstanding_ == 0)) timeout_ms = 0;
    asleep_ = timeout_ms != 0;
  }
  completions_.clear();
  backend_->wait(completions_, timeout_ms);
  {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  if (abandoned_ || completions_.empty()) return;
  last_progress_ns_ = now_ns();
  slow_logged_ = false;
  for (const IoCompletion& completion : completions_) complete(completion);
}

void IoQueue::watch_for_stall() {
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

void IoQueue::fail(std::exception_ptr error) {
  if (failure_) return;
  failure_ = std::move(error);
  {
    const std::lock_guard lock(mutex_);
    error_ = failure_;
  }
  fail_requests();
}

void IoQueue::abandon(std::exception_ptr error) {
  abandoned_ = true;
  in_flight_ = 0;
  for (Slot& slot : slots_) {
    if (slot.request != nullptr) slot.request->in_flight = 0;
  }
  if (failure_) return fail_requests();
  fail(std::move(error));
}

void IoQueue::fail_requests() {
  ready_.clear();
  to_hash_.clear();
  for (Lane& lane : lanes_) {
    const Lane all(lane.begin(), lane.end());  // a copy: retire() removes requests from the lane
    for (const RequestPtr& request : all) {
      request->cursor = request->end;
      if (request->in_flight == 0) retire(*request);
    }
  }
}

}  // namespace sluice
