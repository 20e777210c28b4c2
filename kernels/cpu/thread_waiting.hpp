// How OpenMP threads (libtorch's parallel loops and matrix products) wait for each other.
//
// libgomp's default is to spin for milliseconds at the end of each parallel region. On cores that
// other processes use too, a spinning thread takes the time slice of the thread that it waits for,
// and a step takes 5 to 20 times as long. So the program bounds the spinning: long enough for
// regions that follow each other closely, far shorter than a time slice. docs/benchmarks.md has the
// measurements.
//
// libgomp reads the variable once, while the program is loaded: runtime/cli/thread_waiting.cpp sets
// it before that.
#pragma once

namespace sluice {

inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kWaitPolicyVariable[] = "OMP_WAIT_POLICY";
inline constexpr char kSpinCount[] = "1000";  // some 20 to 50 us
inline constexpr char kSpinSetting[] = "GOMP_SPINCOUNT=1000";

}  // namespace sluice
