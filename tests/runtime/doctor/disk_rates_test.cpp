#include "runtime/doctor/disk_rates.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/bytes.hpp"
#include "tests/runtime/doctor/scratch.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

TEST(DiskRates, SaysWhatAFolderLiesOnAndLeavesNothing) {
  const testing::Scratch scratch;
  const DiskFacts disk = read_disk_facts(scratch.path());
  EXPECT_EQ(disk.path, fs::canonical(scratch.path()).string());
  EXPECT_FALSE(disk.file_system.empty());
  ASSERT_TRUE(disk.free_bytes);
  ASSERT_TRUE(disk.direct);
  EXPECT_EQ(disk.direct_error.empty(), *disk.direct);
  EXPECT_EQ(disk.uring_error.empty(), disk.uring);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(DiskRates, MeasuresOrSaysWhyNot) {
  const testing::Scratch scratch;
  MachineRates rates;
  measure_disk(read_disk_facts(scratch.path()), 0.01, rates);
  const bool measured = rates.disk_read_bps.has_value();
  EXPECT_EQ(measured, rates.disk_write_bps.has_value());
  EXPECT_EQ(measured, rates.disk_both_bps.has_value());
  for (const char* field : {"disk_read_bps", "disk_write_bps", "disk_both_bps"}) {
    EXPECT_EQ(rates.not_measured.count(field), measured ? 0U : 1U) << field;
  }
  if (measured) {
    EXPECT_GT(*rates.disk_read_bps, 1e4);
    EXPECT_LT(*rates.disk_read_bps, 1e12);
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(DiskRates, ObstaclesAreReasonsNotZeros) {
  const testing::Scratch scratch;
  DiskFacts disk;
  disk.path = scratch.path();
  disk.direct_error = "Read-only file system";
  const auto reason = [](const DiskFacts& facts) {
    MachineRates rates;
    measure_disk(facts, 0.01, rates);
    EXPECT_FALSE(rates.disk_read_bps || rates.disk_write_bps || rates.disk_both_bps);
    return rates.not_measured["disk_read_bps"];
  };
  EXPECT_EQ(reason(disk), "Read-only file system");
  disk.direct = false;
  EXPECT_NE(reason(disk).find("O_DIRECT"), std::string::npos);
  disk.direct = true;
  disk.free_bytes = kMiB;
  EXPECT_NE(reason(disk).find("1.00 MiB"), std::string::npos) << reason(disk);
}

// Somebody else's files under the name it uses: refused, kept, and said.
TEST(DiskRates, AFailureOfTheStoreIsTheReason) {
  const testing::Scratch scratch;
  const std::string name = "sluice-doctor-" + std::to_string(::getuid()) + ".swap";
  scratch.write(name, "mine");
  DiskFacts disk;
  disk.path = scratch.path();
  disk.direct = true;
  MachineRates rates;
  measure_disk(disk, 0.01, rates);
  EXPECT_FALSE(rates.disk_read_bps);
  EXPECT_NE(rates.not_measured["disk_both_bps"].find(name), std::string::npos)
      << rates.not_measured["disk_both_bps"];
  EXPECT_TRUE(fs::exists(scratch.path(name)));
}

}  // namespace
}  // namespace sluice
