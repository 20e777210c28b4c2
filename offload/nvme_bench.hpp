// Measures the store's bytes per second on given paths by block size and queue depth, and
// recommends settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/nvme_store.hpp"

namespace sluice {

enum class IoDirection { kRead, kWrite, kBoth };  // kBoth: half of the bytes each way, at once

struct NvmeBenchOptions {
  std::vector<std::string> paths;
  std::int64_t bytes = kGiB;               // moved at each point; the disk needs as much space
  std::int64_t request_bytes = 32 * kMiB;  // of one request: about the states of a unit
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
  std::vector<NvmeBenchPoint> points;  // ordered by block size, then depth, then direction
  std::string description;             // engine, cache, paths of the store
  // The smallest block and depth within 3 % of the best geometric mean over the directions.
  std::int64_t best_block_bytes = 0;
  int best_depth = 0;
  // Rates at the best block and depth; 0 if the direction was not measured.
  double read_bytes_per_s = 0, write_bytes_per_s = 0;
};

// Creates a store of rank 0 on the paths for each block size and depth. Writes all bytes once
// before measuring, because first writes to reserved space are slower than later writes. Runs until
// all bytes have moved; there is no time limit. Throws the errors of NvmeStore, and ConfigError if
// the options contain no point.
[[nodiscard]] NvmeBenchResult bench_nvme(const NvmeBenchOptions& options);

[[nodiscard]] std::string table_of(const NvmeBenchResult& result);  // text; ends with the settings
[[nodiscard]] const char* name_of(IoDirection direction);           // "read", "write", "both"

}  // namespace sluice
