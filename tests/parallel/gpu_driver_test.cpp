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

TEST(HidesGpus, IsSaidByFewWordsAndNotByMistypedNames) {
  for (const char* names : {"0", "7", " 1,2", "GPU-8932f937", "MIG-c8c7", "1,-1", "cuda:0", ",1"}) {
    EXPECT_FALSE(hides_gpus(names)) << names;
  }
  for (const char* hides : {"", " ", "-1", " -1,0", "NoDevFiles", "none ", "void"}) {
    EXPECT_TRUE(hides_gpus(hides)) << hides;
  }
}

TEST(ListedGpus, ANegativeNumberEndsTheList) {
  EXPECT_EQ(listed_gpus(""), 0);
  EXPECT_EQ(listed_gpus("3"), 1);
  EXPECT_EQ(listed_gpus("0, GPU-8932f937,7"), 3);
  EXPECT_EQ(listed_gpus("0,1,"), 2);
  EXPECT_EQ(listed_gpus("0,-1,1"), 1);
}

}  // namespace
}  // namespace sluice
