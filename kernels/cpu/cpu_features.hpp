// The CPU's instruction sets, and the process settings that depend on them.
#pragma once

namespace sluice {

enum class Isa { kScalar, kAvx2, kAvx512 };

// The best instruction set that CPU and operating system offer.
[[nodiscard]] Isa detect_isa();

// True if the CPU reports AMX tiles. The tiles may still not work: kernels, hypervisors and
// sandboxes can withhold them.
[[nodiscard]] bool amx_reported();

// True if AMX works: a forked child asks the kernel for the tile state and multiplies one pair of
// tiles. A refusal or an illegal instruction ends the child only. Takes at most 5 s. False if AMX
// is not reported.
[[nodiscard]] bool probe_amx();

struct ProcessSetup {
  bool amx_reported = false;
  bool amx_usable = false;
  bool capped_onednn = false;  // this call set ONEDNN_MAX_CPU_ISA
};

// Called at the start of main: before other threads exist (the function forks and sets the
// environment) and before the first use of libtorch (oneDNN reads the variable once).
// If AMX is reported but does not work, oneDNN's bf16 GEMM would end the process with SIGILL. The
// function then sets ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, unless this variable or DNNL_MAX_CPU_ISA
// is set already.
ProcessSetup prepare_process();

// Makes subnormal results and operands of this thread zero. Without this setting a saturated
// softmax makes the CPU backward 20 times slower. Threads that start later inherit the setting
// (Linux copies the control register), so one call before libtorch and the pools start threads is
// enough. Running threads need their own call. Loops of parallel.hpp use the caller's setting.
void enable_flush_to_zero();
[[nodiscard]] bool flush_to_zero_enabled();

}  // namespace sluice
