#include "kernels/cpu/parallel.hpp"

#include <algorithm>
#include <atomic>

#include "kernels/base/error.hpp"
#include "kernels/cpu/parallel_tbb.hpp"

namespace sluice {
namespace {

struct Loop {
  std::int64_t n;
  std::int64_t grain;
  void* context;
  RangeFunction function;
  // Repeats, for ThreadSanitizer's eyes, what TBB guarantees: the caller's writes come before every
  // piece, the pieces' writes before the caller goes on, also where a piece throws.
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

void run_range(void* context, std::int64_t begin, std::int64_t end) {
  Loop& loop = *static_cast<Loop*>(context);
  const Piece piece(loop);
  loop.function(loop.context, begin * loop.grain, std::min(loop.n, end * loop.grain));
}

}  // namespace

void parallel_for_erased(std::int64_t n, std::int64_t grain, void* context,
                         RangeFunction function) {
  check(grain >= 1, "parallel_for: grain < 1");
  if (n <= 0) return;
  Loop loop{.n = n, .grain = grain, .context = context, .function = function};
  const Caller caller(loop);
  run_pieces((n + grain - 1) / grain, &loop, run_range);
}

}  // namespace sluice
