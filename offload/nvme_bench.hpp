// How fast the store moves bytes on given paths, by block size and depth, and what to set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/nvme_store.hpp"

namespace sluice {

enum class IoDirection { kRead, kWrite, kBoth };  // kBoth: half of the bytes each way, at once

struct NvmeBenchOptions {
  std::vector<std::string> paths;
  std::int64_t bytes = kGiB;  // moved by each point; the disk holds as much (kBoth: too)
  std::int64_t request_bytes = 32 * kMiB;  // of one Ticket, as a unit's states would be
  std::vector<std::int64_t> block_bytes{256 * kKiB, kMiB, 4 * kMiB};
  std::vector<int> depths{4, 16, 32, 64};
  std::vector<IoDirection> directions{IoDirection::kRead, IoDirection::kWrite, IoDirection::kBoth};
  bool checksums = true;
  IoCache cache = IoCache::kDirect;
  IoEngine engine = IoEngine::kAuto;
};

struct NvmeBenchPoint {
  IoDirection direction = IoDirection::kRead;
  std::int64_t block_bytes = 0;
  int depth = 0;
  double bytes_per_s = 0;
};

struct NvmeBenchResult {
  std::vector<NvmeBenchPoint> points;  // blocks, in them depths, in them directions
  std::string description;             // engine, cache, paths of the store
  // The smallest block and depth within 3 % of the best geometric mean over the directions.
  std::int64_t best_block_bytes = 0;
  int best_depth = 0;
  double read_bytes_per_s = 0, write_bytes_per_s = 0;  // there; 0 where not measured
};

// Creates a store of rank 0 on the paths for each block size and depth, writes its bytes once
// (first writes to reserved space are slower than later ones) and measures. Throws as NvmeStore
// does, and ConfigError for options without points. Takes as long as the bytes take: one thread, no
// limit.
[[nodiscard]] NvmeBenchResult bench_nvme(const NvmeBenchOptions& options);

// What checksums cost: the hash alone, and the store with and without it, taking turns.
struct ChecksumCost {
  struct Ratio {  // of the rate with checksums to that without, in pairs of runs
    double median = 0, lowest = 0, highest = 0;
  };
  double hash_bytes_per_s = 0;                         // one core, memory that no cache holds
  double read_bytes_per_s = 0, write_bytes_per_s = 0;  // medians, with checksums
  Ratio read, write;
  // Of the time a byte takes with checksums, how much the store's one thread hashes.
  [[nodiscard]] double read_share() const { return read_bytes_per_s / hash_bytes_per_s; }
  [[nodiscard]] double write_share() const { return write_bytes_per_s / hash_bytes_per_s; }
};

// At the first block size and depth of the options. REQUIRES: rounds >= 1. Throws as bench_nvme.
[[nodiscard]] ChecksumCost measure_checksum_cost(NvmeBenchOptions options, int rounds);
[[nodiscard]] std::string describe(const ChecksumCost& cost);  // three lines

[[nodiscard]] std::string table_of(const NvmeBenchResult& result);  // for people, ends with advice
[[nodiscard]] const char* name_of(IoDirection direction);           // "read", "write", "both"

}  // namespace sluice
