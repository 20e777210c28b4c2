// The limit on spinning of OpenMP threads (libtorch's parallel loops and matrix products).
//
// By default libgomp spins for milliseconds at the end of each parallel region. On cores that other
// processes use, a spinning thread takes the time slice of the thread that it waits for, and a step
// takes 5 to 20 times as long. The program therefore limits the spinning to 10000 rounds. The limit
// is longer than the gap between two libtorch operations (5 to 50 us), so threads of a quiet
// machine do not sleep in between. It is far shorter than a time slice (3 ms). 1000 rounds would be
// as short as the gap on CPUs with a fast pause. tests/perf/busy_neighbour.py compares programs.
//
// libgomp reads the variable once, while the program is loaded. runtime/cli/thread_waiting.cpp sets
// the variable before.
#pragma once

namespace sluice {

inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kWaitPolicyVariable[] = "OMP_WAIT_POLICY";
inline constexpr char kSpinCount[] = "10000";  // 0.15 to 0.5 ms, depending on the CPU
inline constexpr char kSpinSetting[] = "GOMP_SPINCOUNT=10000";

}  // namespace sluice
