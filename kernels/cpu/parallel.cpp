#include "kernels/cpu/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/error.hpp"
#include "kernels/cpu/parallel_tbb.hpp"

namespace sluice {
namespace {

struct Loop {
  std::int64_t n;
  std::int64_t grain;
  void* context;
  RangeFunction function;
  // Shows ThreadSanitizer the order that TBB guarantees: the caller's writes happen before every
  // piece, and the writes of the pieces happen before the loop returns, even if a piece throws.
  std::atomic<std::int64_t> finished{0};
};

struct Piece {
  explicit Piece(Loop& of) : loop(of) { loop.finished.load(std::memory_order_acquire); }
  ~Piece() { loop.finished.fetch_add(1, std::memory_order_release); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  Loop& loop;
};

struct Caller {
  explicit Caller(Loop& of) : loop(of) { loop.finished.store(0, std::memory_order_release); }
  ~Caller() { loop.finished.load(std::memory_order_acquire); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  Loop& loop;
};

// The argument of on_compute_thread, and a counter that shows ThreadSanitizer the order of its
// calls. Never destroyed, like the pool.
struct Entered {
  std::function<void(int)> function;
  std::atomic<std::int64_t> calls{0};
};

Entered& entered_function() {
  static Entered* instance = new Entered;
  return *instance;
}

void call_entered(int index) {
  Entered& entered = entered_function();
  entered.calls.load(std::memory_order_acquire);
  entered.function(index);
  entered.calls.fetch_add(1, std::memory_order_release);
}

void run_range(void* context, std::int64_t begin, std::int64_t end) {
  Loop& loop = *static_cast<Loop*>(context);
  const Piece piece(loop);
  loop.function(loop.context, begin * loop.grain, std::min(loop.n, end * loop.grain));
}

}  // namespace

void on_compute_thread(std::function<void(int)> function) {
  set_entry_function(nullptr);
  Entered& entered = entered_function();
  entered.calls.load(std::memory_order_acquire);
  entered.function = std::move(function);
  entered.calls.store(0, std::memory_order_release);
  if (entered.function) set_entry_function(call_entered);
}

void parallel_for_erased(std::int64_t n, std::int64_t grain, void* context,
                         RangeFunction function) {
  check(grain >= 1, "parallel_for: grain < 1");
  if (n <= 0) return;
  Loop loop{.n = n, .grain = grain, .context = context, .function = function};
  const Caller caller(loop);
  run_pieces((n + grain - 1) / grain, &loop, run_range);
}

}  // namespace sluice
