#include "offload/nvme_bench.hpp"

#include <gmock/gmock.h>

#include "tests/offload/support.hpp"
#include "tests/perf/checksum_cost.hpp"

namespace sluice {
namespace {

TEST(NvmeBench, MeasuresEveryPointAndAdvises) {
  const Scratch scratch;
  NvmeBenchOptions options;
  options.paths = {scratch.dir("p0")};
  options.bytes = 300'001;
  options.request_bytes = 50'000;
  options.block_bytes = {8192, 16384};
  options.depths = {1, 3};
  const NvmeBenchResult result = bench_nvme(options);
  ASSERT_EQ(result.points.size(), 2U * 2U * 3U);
  for (const NvmeBenchPoint& point : result.points) EXPECT_GT(point.bytes_per_s, 0);
  EXPECT_THAT(options.block_bytes, testing::Contains(result.best_block_bytes));
  EXPECT_THAT(options.depths, testing::Contains(result.best_depth));
  EXPECT_GT(result.read_bytes_per_s, 0);
  EXPECT_GT(result.write_bytes_per_s, 0);
  const std::string table = table_of(result);
  EXPECT_THAT(table, testing::HasSubstr("read GB/s"));
  EXPECT_THAT(table, testing::HasSubstr("best: block "));
  EXPECT_THAT(table, testing::HasSubstr(
                         ": --set offload.block_bytes=" + std::to_string(result.best_block_bytes) +
                         " --set offload.queue_depth=" + std::to_string(result.best_depth) + "\n"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 4 + 1);
  EXPECT_THAT(scratch.names("p0"), testing::IsEmpty());
}

TEST(NvmeBench, SaysWhatChecksumsCost) {
  const Scratch scratch;
  NvmeBenchOptions options;
  options.paths = {scratch.dir("p0")};
  options.bytes = 300'001;
  options.block_bytes = {8192};
  options.depths = {2};
  const ChecksumCost cost = measure_checksum_cost(options, 3);
  EXPECT_GT(cost.hash_bytes_per_s, 0);
  for (const ChecksumCost::Ratio& ratio : {cost.read, cost.write}) {
    EXPECT_GT(ratio.lowest, 0);
    EXPECT_LE(ratio.lowest, ratio.median);
    EXPECT_LE(ratio.median, ratio.highest);
  }
  EXPECT_GT(cost.read_share(), 0);
  EXPECT_THAT(describe(cost), testing::HasSubstr("GB/s with checksums"));
  options.depths.clear();
  EXPECT_THROW((void)measure_checksum_cost(options, 1), ConfigError);
}

TEST(NvmeBench, NeedsPoints) {
  NvmeBenchOptions options;
  options.depths.clear();
  EXPECT_THROW((void)bench_nvme(options), ConfigError);
}

}  // namespace
}  // namespace sluice
