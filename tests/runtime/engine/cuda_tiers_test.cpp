// The CUDA module's half of memory tiers, as far as it goes without a GPU: it is in the module, and
// says what is missing. gpu_tiers_test.cpp has the rest.
#include "runtime/engine/tiers/cuda_tiers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/cpu/update/update_span.hpp"
#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/doctor/cuda_gpu.hpp"
#include "zero/optimizer_rule.hpp"

extern "C" sluice::MakeCudaCopies sluice_make_cuda_copies;
extern "C" sluice::MakeCudaPages sluice_make_cuda_pages;
extern "C" sluice::UseGpu sluice_use_gpu;
extern "C" sluice::CudaUpdate sluice_cuda_adamw;

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The names it exports are in its file; to load it takes all that libtorch_cuda needs.
TEST(CudaTiers, TheModuleHasWhatTheProgramLooksUp) {
  std::ifstream file(SLUICE_BINARY_DIR "/libsluice_cuda.so", std::ios::binary);
  if (!file) GTEST_SKIP() << "libsluice_cuda.so is not built";
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> names{kMakeCudaCopies, kMakeCudaPages, kMakeCudaNorm, kUseGpu,
                                 kOpenCudaGpu};
  for (const OptimizerRule& rule : optimizer_rules()) names.emplace_back(rule.cuda_symbol);
  for (const std::string& name : names) {
    EXPECT_NE(bytes.find('\0' + name + '\0'), std::string::npos) << name;
  }
}

TEST(CudaTiers, SaysWhyPagesAreNotRegistered) {
  if (visible_gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  const std::unique_ptr<PageSource> pages(sluice_make_cuda_pages(make_page_source()));
  EXPECT_THAT(error_of([&] { (void)pages->map(3 * 4096); }),
              AllOf(HasSubstr("12.0 KiB of host memory"), HasSubstr("ulimit -l")));
}

TEST(CudaTiers, SaysThatAGpuCannotBeUsed) {
  if (visible_gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(error_of([] { sluice_use_gpu(3); }), HasSubstr("GPU 3: "));
  const std::unique_ptr<DeviceCopies> copies(sluice_make_cuda_copies(3));
  EXPECT_FALSE(copies->is_host());
  EXPECT_THAT(error_of([&] { copies->begin_thread(); }), HasSubstr("GPU 3: "));
  EXPECT_FALSE(copies->lost());
  EXPECT_THAT(error_of([] { sluice_cuda_adamw({}, 3, nullptr); }), HasSubstr("AdamW on GPU 3: "));
}

}  // namespace
}  // namespace sluice
