// The disk of a folder as the NVMe tier would use it. Leaves nothing behind.
#pragma once

#include <string>

#include "runtime/doctor/machine_facts.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

// Fills disk_* of `rates`, or says why not in not_measured. A short transfer first, then as many
// bytes as fit into about `seconds` (the short one takes as long as it takes), at most 1 GiB and a
// quarter of what is free.
void measure_disk(const DiskFacts& disk, double seconds, MachineRates& rates);

}  // namespace sluice
