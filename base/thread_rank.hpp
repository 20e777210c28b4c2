// Which rank the calling thread works for. A process is one rank (RANK of its environment) unless
// several ranks are its threads (launch.backend: local): then each of these says so itself. Threads
// that a rank starts do not inherit it: they go by the environment. Thread-safe.
#pragma once

namespace sluice {

// That of the innermost ThreadRank of this thread; else RANK of the environment; else 0.
[[nodiscard]] int thread_rank();
// The same with a given rank for threads that did not say.
[[nodiscard]] int thread_rank_or(int process_rank);

// From here to the end of the scope this thread works for `rank`.
class ThreadRank {
 public:
  explicit ThreadRank(int rank);
  ~ThreadRank();
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;

 private:
  int before_;
};

}  // namespace sluice
