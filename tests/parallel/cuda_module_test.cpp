#include "parallel/comm/cuda_module.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"
#include "parallel/comm/communicator.hpp"

namespace sluice {
namespace {

std::string refusal() {
  try {
    (void)make_nccl_communicator({});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(CudaModule, SaysThatItIsNotThere) {
  setenv("SLUICE_CUDA_MODULE", "/nowhere/libsluice_cuda.so", 1);
  EXPECT_FALSE(cuda_module_is_built());
  EXPECT_NE(refusal().find("libsluice_cuda.so is not there"), std::string::npos) << refusal();
  unsetenv("SLUICE_CUDA_MODULE");
}

TEST(CudaModule, SaysThatNoGpuIsVisible) {
  if (visible_gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  setenv("SLUICE_CUDA_MODULE", "/proc/self/exe", 1);  // a file: found, but never loaded
  EXPECT_NE(refusal().find("no GPU is visible"), std::string::npos) << refusal();
  unsetenv("SLUICE_CUDA_MODULE");
}

// As the launcher of an installed package does where the installed torch is for CPUs.
TEST(CudaModule, IsNotLoadedWhereTheLauncherForbidsIt) {
  setenv("SLUICE_CUDA_REFUSED", "torch 2.11.0+cpu is for CPUs", 1);
  setenv("SLUICE_CUDA_MODULE", "/proc/self/exe", 1);
  EXPECT_NE(refusal().find("cannot be used: torch 2.11.0+cpu is for CPUs"), std::string::npos)
      << refusal();
  unsetenv("SLUICE_CUDA_MODULE");
  unsetenv("SLUICE_CUDA_REFUSED");
}

}  // namespace
}  // namespace sluice
