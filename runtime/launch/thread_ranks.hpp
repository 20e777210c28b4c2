// All ranks of a small run as threads of this process (launch.backend: local).
#pragma once

#include <functional>

namespace sluice {

// body(rank) on a thread of its own for each rank of [0, ranks), all at once; ThreadRank says which
// (base/thread_rank.hpp). Where a body throws, fail_others(rank) is
// called on its thread, once in the whole run: it must make the other bodies fail soon, or this
// waits for them as long as they like. Threads inherit the caller's floating-point control and
// signal mask.
//
// Returns once all have ended: 0, or the code of a body that returned another. Where bodies threw
// it reports the failure that is not secondary, the first of several, as report_failure does, with
// the rank's number, and returns its exit code. Throws Error where a thread cannot be started;
// then fail_others was called for the ranks that were.
[[nodiscard]] int run_thread_ranks(int ranks, const std::function<int(int rank)>& body,
                                   const std::function<void(int rank)>& fail_others);

}  // namespace sluice
