// The only source that uses oneTBB. It is compiled without ThreadSanitizer (CMakeLists.txt): oneTBB
// is not instrumented, so handing over pieces looks like a race. parallel.cpp shows the tool the
// order.
#include "kernels/cpu/parallel_tbb.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

namespace tbb = oneapi::tbb;

class Observer final : public tbb::task_scheduler_observer {
 public:
  Observer(tbb::task_arena& arena, EntryFunction entered)
      : tbb::task_scheduler_observer(arena), entered_(entered) {
    observe(true);
  }
  ~Observer() override { observe(false); }  // waits for running calls
  void on_scheduler_entry(bool is_worker) override {
    if (is_worker) entered_(tbb::this_task_arena::current_thread_index());
  }

 private:
  const EntryFunction entered_;
};

// The arena in use. Never destroyed: TBB's workers may outlive static destructors.
struct Pool {
  std::mutex mutex;
  std::atomic<tbb::task_arena*> arena{nullptr};
  EntryFunction entered = nullptr;
  std::unique_ptr<Observer> observer;          // of the arena; null without an entry function
  std::unique_ptr<tbb::global_control> limit;  // permits more threads than CPUs
  int threads = 0;

  void drop_arena() {
    observer.reset();
    delete arena.exchange(nullptr);
  }
};

Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

tbb::task_arena& arena() {
  Pool& p = pool();
  if (tbb::task_arena* ready = p.arena.load(std::memory_order_acquire)) return *ready;
  const std::lock_guard lock(p.mutex);
  if (p.arena.load(std::memory_order_relaxed) == nullptr) {
    if (p.threads == 0) p.threads = tbb::info::default_concurrency();
    auto* made = new tbb::task_arena(p.threads);
    if (p.entered != nullptr) p.observer = std::make_unique<Observer>(*made, p.entered);
    p.arena.store(made, std::memory_order_release);
  }
  return *p.arena.load(std::memory_order_relaxed);
}

}  // namespace

void set_compute_threads(int count) {
  if (count < 1) {
    throw Error("set_compute_threads(" + std::to_string(count) +
                "): the kernels need at least one thread; pass 1 or more");
  }
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  if (p.threads == count) return;
  p.threads = count;
  p.drop_arena();
  p.limit.reset();
  if (count > tbb::info::default_concurrency()) {
    p.limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                    static_cast<std::size_t>(count));
  }
}

void set_entry_function(EntryFunction entered) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  if (p.entered == entered) return;
  p.entered = entered;
  p.drop_arena();
}

int compute_threads() { return arena().max_concurrency(); }

void run_pieces(std::int64_t pieces, void* context, RangeFunction function) {
  tbb::task_arena& threads = arena();
  if (pieces == 1 || threads.max_concurrency() == 1) return function(context, 0, pieces);
  // fp_settings: workers use the caller's MXCSR, which includes flush-to-zero.
  using Context = tbb::task_group_context;
  Context group(Context::bound, Context::default_traits | Context::fp_settings);
  threads.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, pieces),
        [&](const tbb::blocked_range<std::int64_t>& range) {
          function(context, range.begin(), range.end());
        },
        tbb::auto_partitioner(), group);
  });
}

}  // namespace sluice
