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

TEST(NamesGpus, NumbersAndIdentifiersButNotWhatHides) {
  for (const char* names : {"0", "7", " 1,2", "GPU-8932f937", "MIG-c8c7", "1,-1"}) {
    EXPECT_TRUE(names_gpus(names)) << names;
  }
  for (const char* hides : {"", " ", "-1", "-1,0", "NoDevFiles", "none", "void"}) {
    EXPECT_FALSE(names_gpus(hides)) << hides;
  }
}

}  // namespace
}  // namespace sluice
