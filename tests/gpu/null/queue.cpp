#include "tests/gpu/null/queue.hpp"

#include <driver_types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/lanes.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/schedule.hpp"

namespace null_gpu {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Schedule::Kind;
using Lock = std::unique_lock<std::mutex>;

constexpr unsigned kAgainUs = 50;  // between two tries of a task that waits for another rank
constexpr int kLonely = 20;        // tries after which a late host wait also runs other streams
constexpr int kPatience = 16;      // queries of one record that only look
constexpr auto kTick = std::chrono::milliseconds(1);
constexpr auto kIdle = std::chrono::milliseconds(50);  // without calls: the host waits elsewhere

thread_local bool inside_task = false;
std::atomic<std::int64_t> longest = 0;  // written under the runner's mutex

// A task that fails is done: what it should have written is missing.
bool attempt(const Task& task) {
  inside_task = true;
  bool done = true;
  try {
    done = task();
  } catch (const std::exception& error) {
    fault(std::string("device work failed: ") + error.what());
  }
  inside_task = false;
  return done;
}

Schedule schedule_of_process() try {
  const char* const text = std::getenv("NULL_GPU_COMPUTES");
  return Schedule(text == nullptr ? "early" : text);
} catch (const std::exception& error) {
  std::fprintf(stderr, "null GPU: %s\n", error.what());
  ::_exit(2);
}

// Runs the work of all streams, in the threads that call. Thread-safe.
class Runner {
 public:
  void add(const void* stream, Task task) {
    Lock lock = locked();
    longest = std::max(longest.load(), lanes_.add_task(stream, std::move(task)));
    proceed(lock);
  }
  void record(const void* event, const void* stream) {
    Lock lock = locked();
    events_[event] = lanes_.mark(stream);
    proceed(lock);
  }
  void add_wait(const void* stream, const void* event) {
    Lock lock = locked();
    const MarkerRef last = last_record(event);
    if (last == nullptr || last->done || open_waits_++ == skipped_) return;
    lanes_.add_wait(stream, last);
    proceed(lock);
  }
  void forget(const void* event) {
    const Lock lock = locked();
    events_.erase(event);
  }
  bool query_stream(const void* stream) {
    Lock lock(mutex_);
    return query(lock, lanes_.mark(stream));
  }
  bool query_event(const void* event) {
    Lock lock(mutex_);
    return query(lock, last_record(event));
  }
  void finish_stream(const void* stream) {
    Lock lock = locked();
    finish(lock, lanes_.mark(stream));
  }
  void finish_event(const void* event) {
    Lock lock = locked();
    finish(lock, last_record(event));
  }
  void finish_all() {
    Lock lock = locked();
    std::vector<MarkerRef> ends;
    for (const void* stream : lanes_.with_work()) ends.push_back(lanes_.mark(stream));
    for (const MarkerRef& end : ends) finish(lock, end);
  }
  void add_blocking(const void* stream) {
    const Lock lock = locked();
    lanes_.add_blocking(stream);
  }
  void set(const Schedule& schedule) {
    const Lock lock = locked();
    schedule_ = schedule;
  }
  [[noreturn]] void serve() {
    for (;;) {
      std::this_thread::sleep_for(kTick);
      Lock lock(mutex_);
      const bool idle = schedule_.kind() == Kind::kEarly || Clock::now() - last_call_ > kIdle;
      if (idle && !busy_) run_all(lock);
    }
  }

 private:
  Lock locked() {
    if (inside_task) fault("a host function of a stream calls the CUDA runtime");
    Lock lock(mutex_);
    last_call_ = Clock::now();
    return lock;
  }
  // Null: the event was never recorded.
  [[nodiscard]] MarkerRef last_record(const void* event) const {
    const auto found = events_.find(event);
    return found == events_.end() ? nullptr : found->second;
  }

  // Runs the stream's next task without the lock, while `busy_` keeps other threads from running
  // any. False: the task waits for another rank.
  bool run(Lock& lock, const void* stream) {
    const Task& task = lanes_.next_task(stream);
    busy_ = true;
    lock.unlock();
    const bool done = attempt(task);
    lock.lock();
    busy_ = false;
    if (done) lanes_.drop_task(stream);
    return done;
  }
  // These return whether a task was done.
  bool run_first(Lock& lock) {
    const auto streams = lanes_.runnable();
    return std::any_of(streams.begin(), streams.end(),
                       [&](const void* stream) { return run(lock, stream); });
  }
  bool run_all(Lock& lock) {
    bool any = false;
    while (run_first(lock)) any = true;
    return any;
  }
  bool run_random(Lock& lock) {
    const auto streams = lanes_.runnable();
    return !streams.empty() && run(lock, schedule_.chosen(streams));
  }

  // At each call that does not wait.
  void proceed(Lock& lock) {
    if (busy_) return;
    if (schedule_.kind() == Kind::kEarly) run_all(lock);
    if (schedule_.kind() != Kind::kRandom) return;
    for (int left = schedule_.tasks_now(); left > 0; --left) run_random(lock);
  }
  // One step of a wait for the marker. `lonely`: the needed task waits for another rank, and that
  // rank may wait for other work of this one.
  bool advance(Lock& lock, const Marker& marker, bool lonely) {
    if (busy_) return false;
    if (schedule_.kind() == Kind::kEarly) return run_all(lock);
    if (schedule_.kind() == Kind::kRandom) return run_random(lock);
    return run(lock, lanes_.needed_for(marker)) || (lonely && run_first(lock));
  }
  bool query(Lock& lock, const MarkerRef& marker) {
    if (marker == nullptr || marker->done) return true;
    proceed(lock);
    if (++marker->queries > kPatience) {
      while (!marker->done && advance(lock, *marker, false)) continue;
    }
    return marker->done;
  }
  void finish(Lock& lock, const MarkerRef& marker) {
    if (marker == nullptr || inside_task) return;
    for (int tries = 0; !marker->done;) {
      if (advance(lock, *marker, tries > kLonely)) {
        tries = 0;
        continue;
      }
      ++tries;
      lock.unlock();
      ::usleep(kAgainUs);
      lock.lock();
    }
    last_call_ = Clock::now();
  }

  const std::uint64_t skipped_ =
      setting("NULL_GPU_SKIP_WAIT", std::numeric_limits<std::uint64_t>::max());
  std::mutex mutex_;  // guards all below
  Schedule schedule_ = schedule_of_process();
  Lanes lanes_;
  std::map<const void*, MarkerRef> events_;  // last records
  std::uint64_t open_waits_ = 0;             // for work that was not done
  bool busy_ = false;                        // a thread runs a task
  Clock::time_point last_call_;
};

// Never destroyed: libraries call the runtime while the process ends.
Runner& runner() {
  static auto* const all = new Runner;
  return *all;
}

const void* named(const void* stream) { return stream == cudaStreamLegacy ? nullptr : stream; }

}  // namespace

bool computes() {
  static const bool set = std::getenv("NULL_GPU_COMPUTES") != nullptr;
  return set;
}

void enqueue(const void* stream, Task task) {
  const auto again = [task](const void* launching) { runner().add(named(launching), task); };
  if (!recorded(stream, again)) runner().add(named(stream), std::move(task));
}

void serve_other_ranks() {
  static std::once_flag once;
  if (computes()) std::call_once(once, [] { std::thread([] { runner().serve(); }).detach(); });
}

void note_blocking_stream(const void* stream) {
  if (computes()) runner().add_blocking(stream);
}

void enqueue_record(const void* event, const void* stream) {
  if (computes()) runner().record(event, named(stream));
}

void enqueue_wait(const void* stream, const void* event) {
  if (computes()) runner().add_wait(named(stream), event);
}

void forget_event(const void* event) {
  if (computes()) runner().forget(event);
}

bool is_done_stream(const void* stream) {
  return !computes() || runner().query_stream(named(stream));
}

bool is_done_event(const void* event) { return !computes() || runner().query_event(event); }

void finish_stream(const void* stream) {
  if (computes()) runner().finish_stream(named(stream));
}

void finish_event(const void* event) {
  if (computes()) runner().finish_event(event);
}

void finish_device() {
  if (computes()) runner().finish_all();
}

std::int64_t most_tasks() { return longest; }

void set_schedule(const std::string& text) { runner().set(Schedule(text)); }

}  // namespace null_gpu
