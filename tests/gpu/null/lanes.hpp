// What the streams of a null GPU that computes hold: tasks, records of events, waits for records.
// Knows what may run, not what shall. Not thread-safe.
//
// A wait names a record that was added before it, and streams run in order; so waits form no cycle.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/gpu/null/queue.hpp"

namespace null_gpu {

// A place in a stream, done when all work before it is.
struct Marker {
  const void* stream = nullptr;
  bool done = false;
  int queries = 0;
};
using MarkerRef = std::shared_ptr<Marker>;

class Lanes {
 public:
  // A stream that waits for the default stream (null), and that for it.
  void add_blocking(const void* stream) { blocking_.insert(stream); }

  // Returns the number of tasks that the stream holds then.
  std::int64_t add_task(const void* stream, Task task);
  void add_wait(const void* stream, const MarkerRef& marker);
  // The end of the stream as it is.
  MarkerRef mark(const void* stream);

  [[nodiscard]] std::vector<const void*> with_work() const;
  // Streams whose next item is a task, in the order in which the tasks were added.
  [[nodiscard]] std::vector<const void*> runnable() const;
  // The stream whose next task the marker waits for.
  // REQUIRES: the marker is not done.
  [[nodiscard]] const void* needed_for(const Marker& marker) const;

  // The next task of a runnable stream. Stays where it is while items are added.
  [[nodiscard]] const Task& next_task(const void* stream) const;
  void drop_task(const void* stream);

 private:
  struct Item {  // one of three
    Task task = {};
    MarkerRef records = {}, awaits = {};
    std::uint64_t number = 0;
  };
  using Queue = std::deque<Item>;

  void add(const void* stream, Item item);
  MarkerRef end_of(Queue& queue, const void* stream);
  // Lets the stream wait for the streams that CUDA synchronises it with.
  void synchronise(const void* stream);
  // Passes records and waits until each queue begins with a task, or with a wait for one.
  void settle();
  static bool pass(Queue& queue);

  std::map<const void*, Queue> queues_;  // none is empty
  std::map<const void*, std::int64_t> tasks_;
  std::set<const void*> blocking_;
  std::uint64_t last_number_ = 0;
};

}  // namespace null_gpu
