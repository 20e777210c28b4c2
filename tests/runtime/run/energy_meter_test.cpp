#include "runtime/run/report/energy_meter.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

void write_counter(const TemporaryFolder& folder, const std::string& zone, std::int64_t energy_uj) {
  std::filesystem::create_directories(folder.path() / zone);
  std::ofstream(folder.path() / zone / "energy_uj") << energy_uj << "\n";
  std::ofstream(folder.path() / zone / "max_energy_range_uj") << 10'000'000 << "\n";
}

TEST(EnergyMeter, AddsPackagesAndOverflows) {
  const TemporaryFolder folder;
  write_counter(folder, "intel-rapl:0", 9'000'000);
  write_counter(folder, "intel-rapl:1", 1'000'000);
  write_counter(folder, "intel-rapl:0:0", 5'000'000);     // a part of package 0
  write_counter(folder, "intel-rapl-mmio:0", 9'000'000);  // package 0 again
  EnergyMeter meter(0, folder.file(""));
  EXPECT_EQ(meter.cpu_joules(), 0);
  write_counter(folder, "intel-rapl:0", 2'000'000);  // 3 J: from 9 J over 10 J to 2 J
  write_counter(folder, "intel-rapl:1", 1'500'000);
  write_counter(folder, "intel-rapl:0:0", 9'000'000);
  write_counter(folder, "intel-rapl-mmio:0", 9'900'000);
  meter.sample();
  EXPECT_DOUBLE_EQ(meter.cpu_joules().value(), 3.5);
  write_counter(folder, "intel-rapl:1", 4'500'000);
  meter.sample();
  EXPECT_DOUBLE_EQ(meter.cpu_joules().value(), 6.5);
  EXPECT_FALSE(meter.gpu_joules());
}

TEST(EnergyMeter, UnreadableIsUnknown) {
  const TemporaryFolder folder;
  EXPECT_FALSE(EnergyMeter(0, folder.file("none")).cpu_joules());
  std::filesystem::create_directories(folder.file("intel-rapl:0"));  // without a counter
  EnergyMeter meter(0, folder.file(""));
  meter.sample();
  EXPECT_FALSE(meter.cpu_joules());
}

}  // namespace
}  // namespace sluice
