// The measuring itself, over a GPU in RAM whose memory dies under whoever touches it.
#include "runtime/doctor/gpu_rates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/bytes.hpp"
#include "tests/runtime/doctor/fake_gpu.hpp"
#include "tests/runtime/doctor/scratch.hpp"

namespace sluice {
namespace {

using ::testing::Each;
using testing::FakeGpu;
using ::testing::HasSubstr;
using ::testing::Le;

// Odd sizes: a copy is of whole pages, whatever is asked for.
constexpr GpuEffort kEffort{.copy_bytes = kMiB + 5 * kKiB,
                            .memory_bytes = 3 * kMiB,
                            .largest_side = 16384,
                            .product_s = 0.05,
                            .rounds = 3};

std::string reason(const MachineRates& rates, const std::string& field) {
  const auto found = rates.not_measured.find(field);
  return found == rates.not_measured.end() ? "" : found->second;
}

TEST(GpuRates, AreTheDevicesOwn) {
  FakeGpu gpu;
  MachineRates rates;
  const GpuFacts facts = measure_gpu(gpu, kEffort, "/nowhere", gpu.attention(), rates);
  EXPECT_EQ(facts.multiprocessors, 132);
  EXPECT_FALSE(facts.link.lanes);
  ASSERT_TRUE(rates.gpu);
  EXPECT_EQ(rates.gpu->name, "NVIDIA H200");
  EXPECT_EQ(rates.gpu->memory_bytes, facts.memory_bytes);
  EXPECT_NEAR(*rates.gpu->gemm_flops.fp32, 4e13, 1e9);
  EXPECT_NEAR(*rates.gpu->gemm_flops.bf16, 6e14, 1e10);
  EXPECT_NEAR(*rates.gpu->gemm_fp16_flops, 7e14, 1e10);
  EXPECT_NEAR(*rates.gpu->gemm_fp8_flops, 1.2e15, 1e10);
  EXPECT_EQ(rates.gpu->compute_capability, 90);
  EXPECT_EQ(rates.gpu->multiprocessors, 132);
  EXPECT_NEAR(*rates.gpu->device_memory_bps, 4e12, 1e9);
  EXPECT_NEAR(*rates.gpu->device_triad_bps, 4e12, 1e9);
  EXPECT_NEAR(rates.gpu->attention_flops.flash->head_64, 1e14, 1e10);
  EXPECT_NEAR(rates.gpu->attention_flops.flash->head_128, 2e14, 1e10);
  EXPECT_NEAR(rates.gpu->attention_flops.flash->head_128_long, 8e14, 1e10);
  EXPECT_NEAR(rates.gpu->attention_flops.cudnn->head_64, 1.5e14, 1e10);
  EXPECT_TRUE(rates.not_measured.empty());
  for (const char* field : {"gpu.h2d_bps", "gpu.d2h_bps", "gpu.h2d_d2h_bps", "gpu.gemm_flops.bf16",
                            "gpu.attention_flops.flash", "gpu.device_memory_bps"}) {
    EXPECT_TRUE(rates.spread.contains(field)) << field;
  }
  EXPECT_EQ(gpu.allocated(), 0);
  // What is the host's was not touched.
  EXPECT_FALSE(rates.gemm_flops.fp32 || rates.h2d_bps || rates.memory_copy_bps);
}

// A copy of 20 ms each way: one way is a mebibyte in that, both at once nearly twice as much.
TEST(GpuRates, CopiesBothWaysAtOnceOnThreadsOfTheirOwn) {
  FakeGpu gpu({.faults = {.slow = true}});
  MachineRates rates;
  (void)measure_gpu(gpu, kEffort, "/nowhere", gpu.attention(), rates);
  const double one_way = (kMiB + 4 * kKiB) / 0.02;
  EXPECT_LT(*rates.gpu->h2d_bps, one_way);
  EXPECT_GT(*rates.gpu->h2d_bps, one_way / 1.9);
  EXPECT_LT(*rates.gpu->d2h_bps, one_way);
  EXPECT_TRUE(gpu.device().both_ways());
  EXPECT_GT(*rates.gpu->h2d_d2h_bps, 1.3 * *rates.gpu->h2d_bps);
  // One round ahead of those that are timed, and the two that compare.
  EXPECT_EQ(gpu.device().copies(), 4 * (kEffort.rounds + 1) + 2);
}

TEST(GpuRates, ProductsGrowUntilTheyGainNothingOrTakeTooLong) {
  FakeGpu gpu;
  MachineRates rates;
  (void)measure_gpu(gpu, kEffort, "/nowhere", gpu.attention(), rates);
  // 8192 is no faster than 4096.
  EXPECT_EQ(gpu.sides(ProductType::kBf16), (std::vector<std::int64_t>{1024, 2048, 4096, 8192, 0}));
  // Slow enough for a round to be one product.
  FakeGpu slow({.fp32_flops = 2e11, .saturating_side = 1e5});
  (void)measure_gpu(slow, kEffort, "/nowhere", slow.attention(), rates);
  EXPECT_EQ(slow.sides(ProductType::kFp32).size(), 2U);  // 1024: 1 s
  FakeGpu crowded({.free_bytes = 64 * kMiB});            // three of 2048 x 2048 in 16 bits: 24 MiB
  (void)measure_gpu(crowded, kEffort, "/nowhere", crowded.attention(), rates);
  EXPECT_THAT(crowded.sides(ProductType::kBf16), Each(Le(2048)));
  EXPECT_LE(crowded.most_allocated(), 32 * kMiB);
}

TEST(GpuRates, AGpuWithout8BitProductsIsNotAskedForThem) {
  FakeGpu gpu({.compute = "8.6"});
  MachineRates rates;
  (void)measure_gpu(gpu, kEffort, "/nowhere", gpu.attention(), rates);
  EXPECT_EQ(rates.gpu->compute_capability, 86);
  EXPECT_FALSE(rates.gpu->gemm_fp8_flops);
  EXPECT_THAT(reason(rates, "gpu.gemm_flops.fp8"), HasSubstr("below 8.9"));
  EXPECT_TRUE(gpu.sides(ProductType::kFp8).empty());
  EXPECT_TRUE(rates.gpu->gemm_flops.bf16);
}

TEST(GpuRates, AttentionNeedsItsCapabilityAndMemory) {
  FakeGpu old({.compute = "7.5"});
  MachineRates rates;
  (void)measure_gpu(old, kEffort, "/nowhere", old.attention(), rates);
  EXPECT_FALSE(rates.gpu->attention_flops.flash || rates.gpu->attention_flops.cudnn);
  EXPECT_THAT(reason(rates, "gpu.attention_flops.flash"), HasSubstr("below 8.0"));
  FakeGpu gpu;
  MachineRates little;
  const AttentionProbe flash_alone = [&](const AttentionShape& shape) {
    if (shape.cudnn) throw Error("no room");
    return gpu.attention()(shape);
  };
  (void)measure_gpu(gpu, kEffort, "/nowhere", flash_alone, little);
  EXPECT_TRUE(little.gpu->attention_flops.flash);
  EXPECT_THAT(reason(little, "gpu.attention_flops.cudnn"), HasSubstr("no room"));
}

TEST(GpuRates, WhatFailsHasItsReasonAndTheOthersGoOn) {
  FakeGpu gpu({.faults = {.fail = 5}});
  MachineRates rates;
  (void)measure_gpu(gpu, kEffort, "/nowhere", gpu.attention(), rates);
  EXPECT_FALSE(rates.gpu->h2d_bps || rates.gpu->d2h_bps || rates.gpu->h2d_d2h_bps);
  EXPECT_THAT(reason(rates, "gpu.h2d_d2h_bps"), HasSubstr("failed under way"));
  EXPECT_TRUE(rates.gpu->gemm_flops.bf16 && rates.gpu->device_memory_bps);
  EXPECT_TRUE(gpu.device().lost());

  FakeGpu full({.free_bytes = 2 * kMiB});
  MachineRates little;
  (void)measure_gpu(full, kEffort, "/nowhere", full.attention(), little);
  EXPECT_THAT(reason(little, "gpu.gemm_flops.fp32"), HasSubstr("no room"));

  FakeGpu stopped({.clock_stands = true});
  MachineRates none;
  (void)measure_gpu(stopped, kEffort, "/nowhere", stopped.attention(), none);
  EXPECT_THAT(reason(none, "gpu.device_memory_bps"), HasSubstr("clock stood still"));
  EXPECT_FALSE(none.gpu->gemm_flops.fp32);
}

TEST(PciLink, IsReadAsTheSystemShowsIt) {
  const testing::Scratch scratch;
  std::filesystem::create_directory(scratch.path("0000:1b:00.0"));
  const auto write = [&](const char* name, const char* text) {
    scratch.write(std::string("0000:1b:00.0/") + name, text);
  };
  write("current_link_speed", "16.0 GT/s PCIe\n");
  write("max_link_speed", "32.0 GT/s PCIe\n");
  write("current_link_width", "8\n");
  write("max_link_width", "16\n");
  write("numa_node", "1\n");
  FakeGpu gpu;
  MachineRates rates;
  const PciLink link = measure_gpu(gpu, kEffort, scratch.path(), gpu.attention(), rates).link;
  EXPECT_EQ(link.gt_per_s, 16);
  EXPECT_EQ(link.most_lanes, 16);
  EXPECT_EQ(link.numa_node, 1);
  EXPECT_EQ(name_of_link(link.gt_per_s, link.lanes), "PCIe 4.0 x8");
  EXPECT_EQ(name_of_link(link.most_gt_per_s, link.most_lanes), "PCIe 5.0 x16");
  EXPECT_NEAR(*link_bps(16, 16), 31.5e9, 0.1e9);
  EXPECT_NEAR(*link_bps(5.0, 16), 8e9, 1);
  EXPECT_EQ(name_of_link(17, 4), "17 GT/s x4");
  write("numa_node", "-1\n");  // the system does not know
  write("current_link_width", "0\n");
  write("current_link_speed", "Unknown\n");
  const PciLink unknown = read_pci_link(scratch.path(), "0000:1b:00.0");
  EXPECT_FALSE(unknown.numa_node || unknown.lanes || unknown.gt_per_s);
  EXPECT_FALSE(link_bps(unknown.gt_per_s, unknown.lanes));
  EXPECT_EQ(name_of_link(unknown.gt_per_s, unknown.lanes), "");
  EXPECT_FALSE(read_pci_link(scratch.path(), "../etc").lanes);
}

}  // namespace
}  // namespace sluice
