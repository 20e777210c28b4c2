// What the CPU can do, and what has to be set in the process because of it.
#pragma once

namespace sluice {

enum class Isa { kScalar, kAvx2, kAvx512 };

// The best instruction set that CPU and operating system offer.
[[nodiscard]] Isa detect_isa();

// The CPU reports AMX tiles. Says nothing about whether they work: kernels, hypervisors and
// sandboxes withhold them.
[[nodiscard]] bool amx_reported();

// Asks the kernel for the tile state and multiplies one pair of tiles in a forked child, which a
// refusal or an illegal instruction ends (at most 5 s). False where AMX is not reported.
[[nodiscard]] bool probe_amx();

struct ProcessSetup {
  bool amx_reported = false;
  bool amx_usable = false;
  bool capped_onednn = false;  // this call set ONEDNN_MAX_CPU_ISA
};

// To be called at the start of main: before other threads exist (it forks and sets the environment)
// and before libtorch is first used (oneDNN reads the variable once). Where AMX is reported but
// does not work, oneDNN's bf16 GEMM would end the process with SIGILL; sets
// ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 unless that or DNNL_MAX_CPU_ISA is set already.
ProcessSetup prepare_process();

// Subnormal results and operands of this thread become zero: a saturated softmax otherwise makes
// the CPU backward 20 times slower. Threads started later inherit it (Linux copies the control
// register), so one call before libtorch and the pools start theirs is enough; threads that run
// already need their own. Loops of parallel.hpp take the caller's setting.
void enable_flush_to_zero();
[[nodiscard]] bool flush_to_zero_enabled();

}  // namespace sluice
