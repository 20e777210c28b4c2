#include "offload/io_queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/posix/signals_blocked.hpp"

namespace sluice {
namespace {

bool conflict(const IoRequest& a, const IoRequest& b) {
  return (a.write || b.write) && a.cover_begin < b.cover_end && b.cover_begin < a.cover_end;
}

}  // namespace

IoQueue::IoQueue(const NvmeOptions& options, const ExtentPlan& plan, Files files,
                 std::unique_ptr<IoBackend> backend, std::vector<IoMemory> memory)
    : plan_(plan),
      backend_(std::move(backend)),
      inbox_(*backend_),
      transfers_(options, plan, std::move(files), *backend_, std::move(memory)),
      lanes_(static_cast<std::size_t>(plan.extents()) + 1) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
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
  request->cover_begin = offset / transfers_.unit() * transfers_.unit();
  request->cover_end =
      std::min(round_up(request->end, transfers_.unit()), plan_.extent(extent).padded);
  return request;
}

IoQueue::RequestPtr IoQueue::make_flush() const {
  auto request = std::make_shared<IoRequest>();
  request->extent = IoRequest::kFlush;
  request->write = true;
  request->end = plan_.files();  // counts files, not bytes
  request->cover_end = 1;
  return request;
}

Ticket IoQueue::enqueue(int extent, bool write, std::int64_t offset, std::byte* memory,
                        std::int64_t bytes) {
  const RequestPtr request = make_request(extent, write, offset, memory, bytes);
  return inbox_.push({&request, 1});
}

Ticket IoQueue::enqueue_flush() {
  const RequestPtr request = make_flush();
  return inbox_.push({&request, 1});
}

Ticket IoQueue::enqueue_record(Record record) {
  const std::array chain = {
      make_flush(),
      make_request(record.extent, true, 0, record.memory, plan_.extent(record.extent).padded),
      make_flush()};
  // The record is written as whole grains, so no grain has to be read and completed first.
  chain[1]->prepare = [this, end = chain[1]->end, fill = std::move(record.fill)] {
    return std::min(end, round_up(fill(checksums()), transfers_.unit()));
  };
  chain[1]->follows = chain[0].get();
  chain[2]->follows = chain[1].get();
  return inbox_.push(chain);
}

IoQueue::Lane& IoQueue::lane_of(const IoRequest& request) {
  return request.extent < 0 ? lanes_.back() : nth(lanes_, request.extent);
}

void IoQueue::stop() noexcept {
  if (!thread_.joinable()) return;
  inbox_.stop();
  thread_.join();
}

void IoQueue::run() noexcept {
  pthread_setname_np(pthread_self(), "sluice-nvme");
  while (inbox_.take(fresh_)) {
    for (const RequestPtr& request : fresh_) admit(request);
    if (failed_) fail_requests();
    fresh_.clear();
    try {
      start_transfers();
      if (!failed_) transfers_.hash_submitted();
      const auto completions = transfers_.wait(inbox_.begin_sleep());
      inbox_.end_sleep();
      for (const IoCompletion& completion : completions) complete(completion);
      transfers_.watch_for_stall();
    } catch (...) {
      transfers_.abandon();
      fail(std::current_exception());
    }
  }
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

void IoQueue::start_transfers() {
  while (transfers_.has_free_slot() && !ready_.empty()) {
    IoRequest& request = *ready_.front();
    transfers_.start(request);
    if (request.cursor >= request.end) ready_.pop_front();
  }
}

void IoQueue::complete(const IoCompletion& completion) {
  IoSlot& slot = transfers_.take(completion);
  try {
    if (!failed_ && !transfers_.advance(slot, completion.result)) return;
  } catch (...) {
    fail(std::current_exception());
  }
  IoRequest& request = transfers_.release(slot);
  if (request.in_flight == 0 && request.cursor >= request.end) retire(request);
}

void IoQueue::retire(IoRequest& request) {
  Lane& lane = lane_of(request);
  const auto entry = std::find_if(lane.begin(), lane.end(),
                                  [&](const RequestPtr& other) { return other.get() == &request; });
  check(entry != lane.end(), "a request that ends is in its lane");
  const RequestPtr kept = std::move(*entry);
  lane.erase(entry);
  if (!failed_) {  // after a failure requests end in any order, and dependents may not exist
    for (IoRequest* dependent : request.dependents) {
      if (--dependent->blockers == 0) ready_.push_back(dependent);
    }
  }
  ++transfers_.counts().requests;
  inbox_.finish(request, transfers_.counts());
}

void IoQueue::fail(std::exception_ptr error) {
  if (!std::exchange(failed_, true)) inbox_.fail(std::move(error));
  fail_requests();
}

void IoQueue::fail_requests() {
  ready_.clear();
  for (Lane& lane : lanes_) {
    const Lane all(lane.begin(), lane.end());  // a copy: retire() removes requests from the lane
    for (const RequestPtr& request : all) {
      request->cursor = request->end;
      if (request->in_flight == 0) retire(*request);
    }
  }
}

}  // namespace sluice
