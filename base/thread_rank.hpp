// The rank that the calling thread works for. A process is one rank (RANK of its environment). With
// launch.backend: local, ranks are threads of one process, and each rank's thread declares its rank
// (ThreadRank). Threads that a rank starts do not inherit the declaration. Thread-safe.
#pragma once

namespace sluice {

// The rank of this thread's innermost ThreadRank; else RANK of the environment; else 0.
[[nodiscard]] int thread_rank();
// The rank of this thread's innermost ThreadRank; else `process_rank`.
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
