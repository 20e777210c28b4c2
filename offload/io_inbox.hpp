// New requests, the number of outstanding requests, the first error and the published counters of
// an IoQueue, which owns the inbox. Thread-safe; the IO thread alone calls the functions after
// stats().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/ticket.hpp"
#include "offload/io_backend.hpp"
#include "offload/io_request.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

class IoInbox {
 public:
  using RequestPtr = std::shared_ptr<IoRequest>;

  explicit IoInbox(IoBackend& backend) : backend_(backend) {}  // `backend` must outlive the inbox

  // Returns the Ticket of the last request. Throws the first error, if any.
  [[nodiscard]] Ticket push(std::span<const RequestPtr> requests) {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    check(!stopping_, "requests go to an open NVMe store");
    fresh_.insert(fresh_.end(), requests.begin(), requests.end());
    outstanding_ += std::ssize(requests);
    if (std::exchange(asleep_, false)) backend_.wake();
    return Ticket(requests.back());
  }
  void drain() {  // waits for all requests; throws the first error
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return outstanding_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }
  void stop() {  // refuses new requests; take() fails once no request is outstanding
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    backend_.wake();
  }
  [[nodiscard]] std::exception_ptr error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  [[nodiscard]] NvmeStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  // Moves the new requests to the empty `fresh`. False: the IO thread has to end.
  [[nodiscard]] bool take(std::vector<RequestPtr>& fresh) {
    const std::lock_guard lock(mutex_);
    if (ended()) return false;
    fresh.swap(fresh_);
    return true;
  }
  // True: the IO thread may block in the backend until end_sleep(), because push() wakes it.
  [[nodiscard]] bool begin_sleep() {
    const std::lock_guard lock(mutex_);
    return asleep_ = fresh_.empty() && !ended();
  }
  void end_sleep() {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  void fail(std::exception_ptr error) {  // REQUIRES: no earlier error
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  // Completes the Ticket of a request, with the first error, if any, and publishes the counters.
  void finish(IoRequest& request, const NvmeStats& counts) {
    const std::lock_guard lock(mutex_);
    stats_ = counts;
    request.finish(error_);
    if (--outstanding_ == 0) idle_.notify_all();
  }

 private:
  [[nodiscard]] bool ended() const { return stopping_ && outstanding_ == 0; }

  IoBackend& backend_;        // for wake() only
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable idle_;
  std::vector<RequestPtr> fresh_;
  std::int64_t outstanding_ = 0;
  bool stopping_ = false, asleep_ = false;
  std::exception_ptr error_;
  NvmeStats stats_;
};

}  // namespace sluice
