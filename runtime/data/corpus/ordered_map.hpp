// Applies a function to a stream of items on several threads and hands the results on in the order
// of the items: the same results for any number of threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace ordered_map_detail {

template <class In, class Out>
struct Slot {
  In in;
  std::optional<Out> out;
  std::exception_ptr error;
  bool done = false;
};

// Slots in order. The caller's thread adds and removes; workers take the first one not yet taken.
template <class In, class Out, class Work>
class Workers {
 public:
  using SlotPtr = std::shared_ptr<Slot<In, Out>>;
  Workers(int threads, const Work& work) : work_(work) {
    for (int t = 0; t < threads; ++t) threads_.emplace_back([this] { run(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
      closed_ = true;
    }
    changed_.notify_all();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(SlotPtr slot) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(slot));
    }
    changed_.notify_one();
  }
  void wait(const SlotPtr& slot) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return slot->done; });
  }

 private:
  void run() {
    for (;;) {
      SlotPtr slot;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        slot = std::move(waiting_.front());
        waiting_.pop_front();
      }
      try {
        In in = std::move(slot->in);  // goes before the result waits for its turn
        slot->out.emplace(work_(std::move(in)));
      } catch (...) {
        slot->error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        slot->done = true;
      }
      done_.notify_all();
    }
  }

  const Work& work_;
  std::mutex mutex_;
  std::condition_variable changed_, done_;
  std::deque<SlotPtr> waiting_;
  bool closed_ = false;
  std::vector<std::jthread> threads_;  // last: threads end before the rest goes
};

}  // namespace ordered_map_detail

// Calls produce() until it returns nothing, work(item) on `threads` threads, and consume(result) in
// the order of the items. produce and consume run on the caller's thread. At most 2 * threads + 1
// items exist at a time. An exception of produce or work is thrown after every result before it has
// been consumed. With one thread no thread is started.
template <class In, class Out, class Produce, class Work, class Consume>
void ordered_map(int threads, Produce&& produce, const Work& work, Consume&& consume) {
  check(threads > 0, "ordered_map: no threads");
  if (threads == 1) {
    while (std::optional<In> in = produce()) consume(work(std::move(*in)));
    return;
  }
  using Slot = ordered_map_detail::Slot<In, Out>;
  std::deque<std::shared_ptr<Slot>> flight;
  ordered_map_detail::Workers<In, Out, Work> workers(threads, work);
  const auto finish_first = [&] {
    const std::shared_ptr<Slot> slot = std::move(flight.front());
    flight.pop_front();
    workers.wait(slot);
    if (slot->error) std::rethrow_exception(slot->error);
    consume(std::move(*slot->out));
  };
  std::exception_ptr produce_error;
  const auto next = [&]() -> std::optional<In> {
    try {
      return produce();
    } catch (...) {
      produce_error = std::current_exception();
      return std::nullopt;
    }
  };
  while (std::optional<In> in = next()) {
    flight.push_back(std::make_shared<Slot>(Slot{std::move(*in), {}, nullptr, false}));
    workers.add(flight.back());
    if (flight.size() > 2 * static_cast<std::size_t>(threads)) finish_first();
  }
  while (!flight.empty()) finish_first();
  if (produce_error) std::rethrow_exception(produce_error);
}

}  // namespace sluice
