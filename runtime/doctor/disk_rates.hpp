// Measures the disk of a folder in the way the NVMe tier uses it. Removes its files.
#pragma once

#include <string>

#include "runtime/doctor/machine_facts.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

// Fills disk_* of `rates`, or gives the reason in not_measured. A short transfer comes first, then
// as many bytes as fit into about `seconds`, at most 1 GiB and a quarter of the free space. The
// short transfer has no time limit.
void measure_disk(const DiskFacts& disk, double seconds, MachineRates& rates);

}  // namespace sluice
