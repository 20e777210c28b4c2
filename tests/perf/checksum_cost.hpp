// The cost of checksums of the NVMe store, for its benchmark (nvme_bench.cpp).
#pragma once

#include <string>

#include "offload/nvme_bench.hpp"

namespace sluice {

// The cost of checksums: the rate of the hash alone, and of the store with and without checksums in
// alternating runs.
struct ChecksumCost {
  struct Ratio {  // rate with checksums / rate without, over pairs of runs
    double median = 0, lowest = 0, highest = 0;
  };
  double hash_bytes_per_s = 0;                         // one core, memory that no cache holds
  double read_bytes_per_s = 0, write_bytes_per_s = 0;  // medians, with checksums
  Ratio read, write;
  // Share of the store's time with checksums in which its IO thread hashes.
  [[nodiscard]] double read_share() const { return read_bytes_per_s / hash_bytes_per_s; }
  [[nodiscard]] double write_share() const { return write_bytes_per_s / hash_bytes_per_s; }
};

// Measures at the first block size and depth of the options. REQUIRES: rounds >= 1. Throws the
// errors of bench_nvme().
[[nodiscard]] ChecksumCost measure_checksum_cost(NvmeBenchOptions options, int rounds);
[[nodiscard]] std::string describe(const ChecksumCost& cost);  // three lines

}  // namespace sluice
