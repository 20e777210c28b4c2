// Findings about a machine as sentences. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "runtime/doctor/machine_facts.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

// Upper bound of AdamW's rate relative to x *= s, which writes through the caches. Above it the two
// were measured under different load.
inline constexpr double kMostOfMemory = 1.6;

enum class FindingKind {
  kOff,   // something the run could use is switched off or refused
  kSlow,  // something is slower than it should be
  kNote,  // good to know when reading the numbers
};
[[nodiscard]] const char* name_of(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::kNote;
  std::string what;  // "memlock limit 8 MiB"
  std::string why;   // "buffers of the NVMe tier cannot be registered"
  std::string do_;   // "raise it with ulimit -l"; empty: nothing to do
};

// Findings of the GPUs alone, in no order.
[[nodiscard]] std::vector<Finding> find_gpu_faults(const MachineFacts& facts,
                                                   const MachineRates& rates);

// Order: switched off, slow, notes; within each the most costly first.
[[nodiscard]] std::vector<Finding> find_faults(const MachineFacts& facts, const DiskFacts& disk,
                                               const MachineRates& rates);

}  // namespace sluice
