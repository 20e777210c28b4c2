// How OpenMP threads (libtorch's parallel loops and matrix products) wait for each other.
//
// libgomp's default is to spin for milliseconds at the end of each parallel region. On cores that
// other processes use too, a spinning thread takes the time slice of the thread that it waits for,
// and a step takes 5 to 20 times as long. So the program bounds the spinning. 10000 rounds outlast
// the gap between two operations of libtorch (5 to 50 us), so a quiet machine sees no sleep and
// wake between them, and are far shorter than a time slice (3 ms). 1000 rounds would be as short as
// the gap on CPUs with a fast pause. tests/perf/busy_neighbour.py compares programs.
//
// libgomp reads the variable once, while the program is loaded: runtime/cli/thread_waiting.cpp sets
// it before that.
#pragma once

namespace sluice {

inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kWaitPolicyVariable[] = "OMP_WAIT_POLICY";
inline constexpr char kSpinCount[] = "10000";  // 0.15 to 0.5 ms, by the CPU
inline constexpr char kSpinSetting[] = "GOMP_SPINCOUNT=10000";

}  // namespace sluice
