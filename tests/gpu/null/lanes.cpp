#include "tests/gpu/null/lanes.hpp"

#include <iterator>
#include <utility>

namespace null_gpu {

std::int64_t Lanes::add_task(const void* stream, Task task) {
  synchronise(stream);
  add(stream, {.task = std::move(task)});
  return ++tasks_[stream];
}

void Lanes::add_wait(const void* stream, const MarkerRef& marker) {
  synchronise(stream);
  add(stream, {.awaits = marker});
  settle();
}

MarkerRef Lanes::mark(const void* stream) {
  synchronise(stream);
  MarkerRef end = end_of(queues_[stream], stream);
  settle();
  return end;
}

std::vector<const void*> Lanes::with_work() const {
  std::vector<const void*> streams;
  for (const auto& [stream, queue] : queues_) streams.push_back(stream);
  return streams;
}

std::vector<const void*> Lanes::runnable() const {
  std::map<std::uint64_t, const void*> by_number;
  for (const auto& [stream, queue] : queues_) {
    if (queue.front().task) by_number[queue.front().number] = stream;
  }
  std::vector<const void*> streams;
  for (const auto& [number, stream] : by_number) streams.push_back(stream);
  return streams;
}

const void* Lanes::needed_for(const Marker& marker) const {
  const Marker* next = &marker;
  for (;;) {
    const Item& head = queues_.at(next->stream).front();
    if (head.task) return next->stream;
    next = head.awaits.get();
  }
}

const Task& Lanes::next_task(const void* stream) const { return queues_.at(stream).front().task; }

void Lanes::drop_task(const void* stream) {
  queues_.at(stream).pop_front();
  --tasks_.at(stream);
  settle();
}

void Lanes::add(const void* stream, Item item) {
  item.number = ++last_number_;
  queues_[stream].push_back(std::move(item));
}

MarkerRef Lanes::end_of(Queue& queue, const void* stream) {
  if (!queue.empty() && queue.back().records != nullptr) return queue.back().records;
  const auto end = std::make_shared<Marker>();
  end->stream = stream;
  add(stream, {.records = end});
  return end;
}

void Lanes::synchronise(const void* stream) {
  if (stream != nullptr && blocking_.count(stream) == 0) return;
  std::vector<MarkerRef> ends;
  for (auto& [other, queue] : queues_) {
    const bool linked = stream == nullptr ? blocking_.count(other) > 0 : other == nullptr;
    if (linked) ends.push_back(end_of(queue, other));
  }
  for (const MarkerRef& end : ends) add(stream, {.awaits = end});
}

void Lanes::settle() {
  for (bool again = true; again;) {
    again = false;
    for (auto queue = queues_.begin(); queue != queues_.end();) {
      again = pass(queue->second) || again;
      queue = queue->second.empty() ? queues_.erase(queue) : std::next(queue);
    }
  }
}

// Whether a record was passed.
bool Lanes::pass(Queue& queue) {
  bool recorded = false;
  while (!queue.empty() && !queue.front().task) {
    const Item& head = queue.front();
    if (head.awaits != nullptr && !head.awaits->done) break;
    if (head.records != nullptr) recorded = head.records->done = true;
    queue.pop_front();
  }
  return recorded;
}

}  // namespace null_gpu
