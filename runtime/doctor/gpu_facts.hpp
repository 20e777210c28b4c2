// Facts that a GPU and its driver report.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/doctor/pci_link.hpp"

namespace sluice {

struct GpuFacts {
  int index = 0;            // among those visible
  std::string name{};       // "NVIDIA H200"
  std::string compute{};    // capability, "9.0"
  int multiprocessors = 0;  // SMs
  int copy_engines = 0;     // 2: both ways at once
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;      // before anything was allocated here
  std::string driver{}, runtime{};  // CUDA versions, "13.0": most the driver runs, what is linked
  std::string bus_id{};             // "0000:1b:00.0"
  bool tf32 = false;                // fp32 products as a run has them are rounded to TF32
  PciLink link{};                   // after copies: an idle link may be slower
};

}  // namespace sluice
