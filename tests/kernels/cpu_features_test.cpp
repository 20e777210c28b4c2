#include "kernels/cpu/cpu_features.hpp"

#include <cstdlib>

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

TEST(CpuFeatures, TablesExistForWhatTheMachineHas) {
  ASSERT_NE(table_for(Isa::kScalar), nullptr);
  EXPECT_STREQ(table_for(Isa::kScalar)->name, "scalar");
  ASSERT_NE(table_for(detect_isa()), nullptr);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    EXPECT_EQ(table_for(isa) != nullptr, static_cast<int>(isa) <= static_cast<int>(detect_isa()));
  }
}

// A fresh process, because the table is chosen once.
void name_of_table_or_die() {
  try {
    std::fputs(kernels().name, stderr);
    std::_Exit(0);
  } catch (const ConfigError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(error.exit_code());
  }
}

TEST(CpuFeaturesDeathTest, EnvironmentChoosesTheTable) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("SLUICE_ISA", "scalar", 1);
  EXPECT_EXIT(name_of_table_or_die(), ::testing::ExitedWithCode(0), "^scalar$");
  setenv("SLUICE_ISA", "sse9", 1);
  EXPECT_EXIT(name_of_table_or_die(), ::testing::ExitedWithCode(2),
              "SLUICE_ISA=sse9 is no instruction set; use scalar, avx2 or avx512");
  unsetenv("SLUICE_ISA");
  EXPECT_EXIT(name_of_table_or_die(), ::testing::ExitedWithCode(0), table_for(detect_isa())->name);
}

TEST(CpuFeatures, FlushToZeroIsPerThreadAndInherited) {
  if (detect_isa() == Isa::kScalar) GTEST_SKIP() << "no control over subnormals here";
  EXPECT_FALSE(flush_to_zero_enabled());
  std::thread([] {
    volatile float tiny = 1e-40F;
    EXPECT_NE(tiny * 1.0F, 0.0F);
    enable_flush_to_zero();
    EXPECT_EQ(tiny * 1.0F, 0.0F);
    std::thread([] { EXPECT_TRUE(flush_to_zero_enabled()); }).join();
  }).join();
  EXPECT_FALSE(flush_to_zero_enabled());
}

TEST(CpuFeatures, AmxProbeDecidesAboutOneDnn) {
  unsetenv("ONEDNN_MAX_CPU_ISA");
  unsetenv("DNNL_MAX_CPU_ISA");
  const ProcessSetup setup = prepare_process();
  EXPECT_EQ(setup.amx_reported, amx_reported());
  EXPECT_LE(setup.amx_usable, setup.amx_reported);
  EXPECT_EQ(setup.capped_onednn, setup.amx_reported && !setup.amx_usable);
  const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(cap != nullptr, setup.capped_onednn);
  if (cap != nullptr) {
    EXPECT_STREQ(cap, "AVX512_CORE_BF16");
  }
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  EXPECT_FALSE(prepare_process().capped_onednn);
  EXPECT_STREQ(std::getenv("ONEDNN_MAX_CPU_ISA"), "AVX2");
  unsetenv("ONEDNN_MAX_CPU_ISA");
}

}  // namespace
}  // namespace sluice::testing
