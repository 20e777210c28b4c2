#include <cpuid.h>
#include <immintrin.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "kernels/cpu/cpu_features.hpp"

namespace sluice {
namespace {

constexpr unsigned kFlushToZero = 0x8000;       // MXCSR: results
constexpr unsigned kDenormalsAreZero = 0x0040;  // MXCSR: operands

// Operand of ldtilecfg: palette 1; for each tile its rows and bytes per row.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {4, 4, 4};
  std::uint8_t rows[16] = {1, 1, 1};
};

// Multiplies 1x2 by 2x1 in bf16: 3 * 1 + 5 * 1 = 8. Exits with 0 if the tiles give 8. SIGILL may
// end the process instead.
[[noreturn]] void multiply_tiles_and_exit() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  alarm(5);
  std::signal(SIGILL, SIG_DFL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) _exit(2);
  const TileConfig config;
  const std::uint16_t a[2] = {0x4040, 0x40a0};  // 3, 5
  const std::uint16_t b[2] = {0x3f80, 0x3f80};  // 1, 1
  float c = 0.0F;
  const long stride = 4;
  asm volatile(
      "ldtilecfg %1\n\t"
      "tilezero %%tmm0\n\t"
      "tileloadd (%2,%4,1), %%tmm1\n\t"
      "tileloadd (%3,%4,1), %%tmm2\n\t"
      "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
      "tilestored %%tmm0, (%5,%4,1)\n\t"
      "tilerelease"
      : "+m"(c)
      : "m"(config), "r"(a), "r"(b), "r"(stride), "r"(&c)
      : "memory");
  _exit(c == 8.0F ? 0 : 3);
}

}  // namespace

Isa detect_isa() {
  static const Isa best = [] {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    if (!avx2) return Isa::kScalar;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }();
  return best;
}

bool amx_reported() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kTile = 1U << 24;
  constexpr unsigned kBf16 = 1U << 22;
  return (edx & kTile) != 0 && (edx & kBf16) != 0;
}

bool probe_amx() {
  if (!amx_reported()) return false;
  const pid_t child = fork();
  if (child == 0) multiply_tiles_and_exit();
  if (child < 0) return false;
  int status = 0;
  pid_t waited = -1;
  do {
    waited = waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  return waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void enable_flush_to_zero() { _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero); }

bool flush_to_zero_enabled() {
  constexpr unsigned kBoth = kFlushToZero | kDenormalsAreZero;
  return (_mm_getcsr() & kBoth) == kBoth;
}

}  // namespace sluice
