#include "tests/perf/checksum_cost.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "offload/checksums.hpp"
#include "offload/host_pool.hpp"
#include "offload/io_clock.hpp"

namespace sluice {
namespace {

// The store's own hash over its own grains.
double hash_rate() {
  constexpr std::int64_t kBytes = 256 * kMiB;
  HostPool pool;
  const HostBlock memory = pool.allocate("bench", kBytes);
  for (std::int64_t i = 0; i < kBytes; i += 64) memory.data()[i] = static_cast<std::byte>(i >> 6);
  Checksums sums(NvmeOptions{}.checksum_bytes);
  sums.add_extent(kBytes);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const std::int64_t start = now_ns();
    sums.record(0, 0, kBytes, memory.data());
    best =
        std::max(best, static_cast<double>(kBytes) * 1e9 / static_cast<double>(now_ns() - start));
  }
  return best;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct Rates {
  std::vector<double> hashed, plain;
  void add(double bytes_per_s, bool checksums) {
    (checksums ? hashed : plain).push_back(bytes_per_s);
  }
  [[nodiscard]] ChecksumCost::Ratio ratio() const {
    std::vector<double> pairs;
    for (std::size_t i = 0; i < hashed.size(); ++i) pairs.push_back(hashed[i] / plain[i]);
    const auto [low, high] = std::minmax_element(pairs.begin(), pairs.end());
    return {median(pairs), *low, *high};
  }
};

std::string line_of(const char* name, double rate, const ChecksumCost::Ratio& ratio, double share) {
  char text[160];
  std::snprintf(
      text, sizeof(text),
      "%-5s %6.2f GB/s with checksums, %.2f (%.2f-%.2f) of without; the hash is %.1f %% of "
      "its time\n",
      name, rate / 1e9, ratio.median, ratio.lowest, ratio.highest, 100 * share);
  return text;
}

}  // namespace

ChecksumCost measure_checksum_cost(NvmeBenchOptions options, int rounds) {
  check(rounds >= 1, "at least one round");
  if (options.block_bytes.empty() || options.depths.empty()) {
    throw ConfigError("bench of checksums: give a block size and a depth");
  }
  options.block_bytes = std::vector<std::int64_t>{options.block_bytes.front()};
  options.depths = std::vector<int>{options.depths.front()};
  options.directions = {IoDirection::kRead, IoDirection::kWrite};
  ChecksumCost cost;
  cost.hash_bytes_per_s = hash_rate();
  Rates read;
  Rates write;
  for (int i = 0; i < 2 * rounds; ++i) {
    // Order: on, off, off, on. Neither setting is always the second of its pair.
    options.checksums = (i % 4 == 0 || i % 4 == 3);
    const NvmeBenchResult result = bench_nvme(options);
    read.add(result.read_bytes_per_s, options.checksums);
    write.add(result.write_bytes_per_s, options.checksums);
  }
  cost.read = read.ratio();
  cost.write = write.ratio();
  cost.read_bytes_per_s = median(read.hashed);
  cost.write_bytes_per_s = median(write.hashed);
  return cost;
}

std::string describe(const ChecksumCost& cost) {
  char text[96];
  std::snprintf(text, sizeof(text), "XXH3-64: %.1f GB/s on one core\n",
                cost.hash_bytes_per_s / 1e9);
  return text + line_of("read", cost.read_bytes_per_s, cost.read, cost.read_share()) +
         line_of("write", cost.write_bytes_per_s, cost.write, cost.write_share());
}

}  // namespace sluice
