#include <cstdlib>

#include "base/log.hpp"
#include "kernels/cpu/cpu_features.hpp"

namespace sluice {

ProcessSetup prepare_process() {
  ProcessSetup setup;
  setup.amx_reported = amx_reported();
  if (!setup.amx_reported) return setup;
  setup.amx_usable = probe_amx();
  if (setup.amx_usable) return setup;
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
    return setup;
  }
  setup.capped_onednn = setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0) == 0;
  log_debug("the CPU reports AMX but does not grant it: oneDNN capped at AVX512_CORE_BF16");
  return setup;
}

}  // namespace sluice
