#include "kernels/cpu/parallel.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(compute_threads()) { set_compute_threads(count); }
  ~ThreadCount() { set_compute_threads(before_); }

 private:
  int before_;
};

TEST(ParallelFor, CoversEveryElementOnceInAlignedPieces) {
  for (const int threads : {1, 2, 3}) {
    const ThreadCount guard(threads);
    EXPECT_EQ(compute_threads(), threads);
    for (const std::int64_t n : {0L, 1L, 63L, 64L, 65L, 10007L}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
      parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % 64, 0);
        EXPECT_LT(begin, end);
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (const std::atomic<int>& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ParallelFor, ExceptionsReachTheCaller) {
  const ThreadCount guard(3);
  EXPECT_THROW(parallel_for(100, 1,
                            [](std::int64_t begin, std::int64_t) {
                              if (begin >= 50) throw std::out_of_range("piece");
                            }),
               std::out_of_range);
  std::atomic<int> ran{0};
  parallel_for(10, 1,
               [&](std::int64_t begin, std::int64_t end) { ran += static_cast<int>(end - begin); });
  EXPECT_EQ(ran.load(), 10);
}

TEST(ParallelFor, ThreadsOfThePoolSayWhenTheyComeAndCallersDoNot) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TBB orders its observers before the threads they see; the tool does not know it";
#endif
  std::atomic<int> entered{0};
  std::atomic<bool> caller_entered{false};
  const auto caller = std::this_thread::get_id();
  on_compute_thread([&](int index) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, 3);
    if (std::this_thread::get_id() == caller) caller_entered = true;
    ++entered;
  });
  {
    const ThreadCount guard(3);
    // The caller's own piece waits for another thread: on a busy machine one may come too late for
    // any number of short loops.
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
      while (entered == 0 && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  on_compute_thread({});
  EXPECT_GT(entered.load(), 0);
  EXPECT_FALSE(caller_entered.load());
  const int before = entered;
  const ThreadCount guard(2);
  parallel_for(32, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(entered.load(), before);
}

TEST(ParallelFor, NestsAndRunsFromSeveralThreads) {
  const ThreadCount guard(2);
  std::atomic<int> total{0};
  const auto work = [&] {
    parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
      parallel_for((end - begin) * 10, 1,
                   [&](std::int64_t b, std::int64_t e) { total += static_cast<int>(e - b); });
    });
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(total.load(), 160);
}

TEST(ParallelFor, WorkersTakeOverTheCallersFlushToZero) {
  const ThreadCount guard(3);
  std::thread([] {
    for (const bool flush : {false, true}) {
      if (flush) enable_flush_to_zero();
      std::atomic<int> wrong{0};
      for (int repeat = 0; repeat < 50; ++repeat) {
        parallel_for(64, 1, [&](std::int64_t, std::int64_t) {
          if (flush_to_zero_enabled() != flush) ++wrong;
        });
      }
      EXPECT_EQ(wrong.load(), 0);
    }
  }).join();
}

TEST(ParallelFor, MisuseIsNamed) {
  EXPECT_THROW(set_compute_threads(0), Error);
  EXPECT_THROW(parallel_for(1, 0, [](std::int64_t, std::int64_t) {}), Error);
  static_assert(grain_elements(4) * 4 >= 64 * 1024);
}

}  // namespace
}  // namespace sluice::testing
