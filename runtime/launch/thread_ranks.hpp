// All ranks of a small run as threads of this process (launch.backend: local).
#pragma once

#include <functional>

namespace sluice {

// Runs body(rank) for each rank of [0, ranks), all at once, each on a thread of its own; ThreadRank
// holds the number (base/thread_rank.hpp). After the first exception fail_others(rank) is called on
// that thread, once in the whole run. It must make the other bodies fail soon, since this function
// waits for all of them. Threads inherit the caller's floating-point control and signal mask.
//
// Returns after all bodies have ended: 0, or the code of a body that returned another one. After
// exceptions it reports the earliest failure that is not secondary, as report_failure does, with
// the rank's number, and returns its exit code. Throws Error if a thread cannot be started;
// fail_others was then called for the started ranks.
[[nodiscard]] int run_thread_ranks(int ranks, const std::function<int(int rank)>& body,
                                   const std::function<void(int rank)>& fail_others);

}  // namespace sluice
