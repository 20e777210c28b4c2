#include "parallel/comm/gpu_driver.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/doctor/scratch.hpp"

namespace sluice {
namespace {

TEST(GpuDeviceFile, IsACardsOwn) {
  const testing::Scratch devices;
  for (const char* control : {"nvidiactl", "nvidia-uvm"}) devices.write(control, "");
  EXPECT_EQ(gpu_device_file(devices.path(), true), "");
  devices.write("nvidia0", "");
  EXPECT_EQ(gpu_device_file(devices.path(), true), devices.path("nvidia0"));
  EXPECT_EQ(gpu_device_file(devices.path(), false), devices.path("nvidia0"));
}

TEST(GpuDeviceFile, OfWslCountsWithNvidiasDriver) {
  const testing::Scratch devices;
  devices.write("dxg", "");
  EXPECT_EQ(gpu_device_file(devices.path(), false), "");
  EXPECT_EQ(gpu_device_file(devices.path(), true), devices.path("dxg"));
}

}  // namespace
}  // namespace sluice
