// Processors other than x86-64: scalar kernels, no AMX, no flush-to-zero.
#include "kernels/cpu/cpu_features.hpp"

namespace sluice {

Isa detect_isa() { return Isa::kScalar; }
bool amx_reported() { return false; }
bool probe_amx() { return false; }
void enable_flush_to_zero() {}
bool flush_to_zero_enabled() { return false; }

}  // namespace sluice
