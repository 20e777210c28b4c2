#include "runtime/plan/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace sluice {
namespace {

TEST(MachineProfile, EveryShippedOneIsComplete) {
  const std::vector<std::string> names = profile_names();
  for (const char* name :
       {"h100-sxm", "h200", "a100-80g", "rtx3090", "rtx4090", "rtx5090", "cpu"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  for (const std::string& name : names) {
    const MachineProfile machine = named_profile(name);
    EXPECT_EQ(machine.name, name);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const Rates rates = rates_of(machine, {.ranks = 4, .dtype = dtype, .multiplied_in = dtype});
      for (const double rate :
           {rates.flops, rates.device_memory_bps, rates.device_adam, rates.host_memory_bps,
            rates.host_adam, rates.comm_bps, rates.h2d_bps, rates.d2h_bps, rates.disk_read_bps,
            rates.disk_write_bps}) {
        EXPECT_GT(rate, 0) << name;
      }
      EXPECT_LE(rates.flops * (machine.gpu ? 1 : 4), machine.peak_flops.of(dtype)) << name;
    }
    if (machine.gpu) {
      EXPECT_GT(machine.device_memory_bytes, machine.device_overhead_bytes) << name;
    }
  }
}

TEST(MachineProfile, RanksShareWhatANodeHas) {
  const MachineProfile gpu = named_profile("h100-sxm");
  const Rates one = rates_of(gpu, {.ranks = 1, .dtype = DType::kBFloat16});
  const Rates node = rates_of(gpu, {.ranks = 8, .dtype = DType::kBFloat16});
  const Rates four_nodes = rates_of(gpu, {.ranks = 32, .dtype = DType::kBFloat16});
  EXPECT_DOUBLE_EQ(node.flops, one.flops);
  EXPECT_DOUBLE_EQ(node.host_adam * 8, one.host_adam);
  EXPECT_DOUBLE_EQ(node.disk_write_bps * 8, one.disk_write_bps);
  EXPECT_DOUBLE_EQ(four_nodes.disk_write_bps, node.disk_write_bps);
  EXPECT_EQ(nodes_of(gpu, 32), 4);
  EXPECT_EQ(nodes_of(gpu, 33), 5);
  const MachineProfile cpu = named_profile("cpu");
  EXPECT_DOUBLE_EQ(rates_of(cpu, {.ranks = 2}).flops * 2, rates_of(cpu, {.ranks = 1}).flops);
  EXPECT_TRUE(rates_of(cpu, {}).shared_cores);
}

TEST(MachineProfile, MeasuredRatesReplaceOnlyWhatWasMeasured) {
  const MachineProfile base = named_profile("cpu");
  MachineRates rates;
  rates.host = "box";
  rates.gemm_flops.fp32 = 1e11;
  rates.disk_read_bps = 4e9;
  rates.disk_write_bps = 2e9;
  rates.disk_both_bps = 4.5e9;
  rates.comm = LinkRates{.latency_s = 3e-6, .bps = 5e9};
  rates.comm_ranks = 4;
  const MachineProfile machine = measured_profile(rates, base);
  EXPECT_EQ(machine.name, "box");
  EXPECT_DOUBLE_EQ(machine.gemm_flops.fp32, 1e11);
  EXPECT_DOUBLE_EQ(machine.peak_flops.fp32, 1e11);
  EXPECT_DOUBLE_EQ(machine.gemm_flops.bf16, base.gemm_flops.bf16);
  const Rates rank = rates_of(machine, {});
  EXPECT_DOUBLE_EQ(rank.disk_duplex, 1.5);
  EXPECT_DOUBLE_EQ(rank.comm_latency_s, 1.5e-6);
}

// Of eight cores: products by threads as measured, straight in between, never above the share.
TEST(MachineProfile, FewerThreadsThanCoresComputeLess) {
  MachineRates measured;
  measured.threads = 8;
  measured.gemm_flops.fp32 = 800e9;
  measured.gemm_by_threads = {{1, {150e9, {}}}, {4, {480e9, {}}}, {8, {800e9, {}}}};
  MachineProfile machine = measured_profile(measured, named_profile("cpu"));
  const auto flops = [&](int ranks, int threads) {
    machine.threads_of_rank = threads;
    return rates_of(machine, {.ranks = ranks}).flops / machine.gemm_efficiency;
  };
  EXPECT_DOUBLE_EQ(flops(1, 0), 800e9);
  EXPECT_DOUBLE_EQ(flops(1, 1), 150e9);
  EXPECT_DOUBLE_EQ(flops(1, 2), 260e9);
  EXPECT_DOUBLE_EQ(flops(1, 6), 640e9);
  EXPECT_DOUBLE_EQ(flops(1, 8), 800e9);
  EXPECT_DOUBLE_EQ(flops(4, 1), 150e9);
  EXPECT_DOUBLE_EQ(flops(2, 3), 370e9);
  machine.gemm_by_threads[0].gemm_flops.fp32 = 250e9;  // alone, faster than in company
  EXPECT_DOUBLE_EQ(flops(4, 1), 200e9);
  EXPECT_DOUBLE_EQ(flops(8, 1), 100e9);
  EXPECT_DOUBLE_EQ(flops(1, 99), 800e9);
  machine.threads_of_rank = 2;
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 1, 1), 2);
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 8, 1), 1);
  EXPECT_FALSE(threads_are_unpriced(machine, 1));
  machine.gemm_by_threads.clear();
  EXPECT_TRUE(threads_are_unpriced(machine, 1));
  EXPECT_FALSE(threads_are_unpriced(machine, 4));  // all cores have a thread
  machine.threads_of_rank = 0;
  EXPECT_FALSE(threads_are_unpriced(machine, 1));
}

// A plan would have an MFU of several hundred percent.
TEST(MachineProfile, ProductsAreNotFasterThanThePeak) {
  const MachineProfile base = named_profile("cpu");
  const auto parsed = [&](const std::string& text) { return parse_profile(text, "a.json", base); };
  for (const char* text : {R"({"gemm_flops": {"bf16": 5e12}, "peak_flops": {"bf16": 1e12}})",
                           R"({"peak_flops": {"fp32": 1e9}})"}) {
    try {
      (void)parsed(text);
      FAIL() << text;
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find("a.json: 'peak_flops' has 1"), 0U) << message;
      EXPECT_NE(message.find(" of gemm_flops"), std::string::npos) << message;
    }
  }
  const char* const equal = R"({"gemm_flops": {"fp32": 1e12}, "peak_flops": {"fp32": 1e12}})";
  EXPECT_EQ(parsed(equal).peak_flops.fp32, 1e12);
  EXPECT_EQ(parsed(R"({"gemm_flops": {"fp32": 9e13}})").peak_flops.fp32, 9e13);
}

TEST(MachineProfile, AFileOfTheDoctorsIsOneToo) {
  MachineRates rates;
  rates.host = "box";
  rates.gemm_flops.fp32 = 1e11;
  rates.units = {{"gpt2", "fp32", 256, 1e10, 1e10, 1e10, 1e10, 0.8}};
  const MachineProfile machine =
      parse_profile(machine_rates_json(rates), "rates.json", named_profile("cpu"));
  EXPECT_EQ(machine.name, "box");
  EXPECT_DOUBLE_EQ(machine.gemm_flops.fp32, 1e11);
  ASSERT_EQ(machine.units.size(), 1U);
  EXPECT_DOUBLE_EQ(machine.units[0].threads_efficiency, 0.8);
}

MachineRates of_a_gpu_machine() {
  MachineRates rates;
  rates.host = "box";
  rates.threads = 64;
  rates.gemm_flops.fp32 = 3e12;
  rates.h2d_bps = 9e9;
  rates.adam_params_per_s.fp32 = 7e9;
  rates.disk_read_bps = 6e9;
  rates.comm = LinkRates{.latency_s = 3e-6, .bps = 5e9};
  rates.units = {{"gpt2", "fp32", 256, 1e10, 1e10, 1e10, 1e10, 0.8}};
  rates.gpu = GpuRates{.name = "NVIDIA H200 NVL", .count = 4, .memory_bytes = 140'000'000'000};
  rates.gpu->gemm_flops = {4e13, 7e14};
  rates.gpu->device_memory_bps = 4e12;
  rates.gpu->h2d_bps = 55e9;
  return rates;
}

TEST(MachineProfile, ACardIsKnownByItsName) {
  EXPECT_DOUBLE_EQ(dense_peak_flops("NVIDIA H100 80GB HBM3", DType::kBFloat16), 989e12);
  EXPECT_EQ(dense_peak_flops("NVIDIA X1", DType::kBFloat16), 0);
}

TEST(MachineProfile, AMeasuredGpuIsAGpusProfileAndItsHostACpus) {
  const MachineRates rates = of_a_gpu_machine();
  const MachineProfile like = named_profile("h200");
  const MachineProfile gpu =
      parse_profile(machine_rates_json(rates), "rates.json", named_profile("cpu"));
  EXPECT_TRUE(gpu.gpu);
  EXPECT_EQ(gpu.name, "box");
  EXPECT_NE(gpu.origin.find("NVIDIA H200 NVL"), std::string::npos);
  EXPECT_NE(gpu.origin.find("profile h200"), std::string::npos);
  EXPECT_EQ(gpu.devices_per_node, 4);
  EXPECT_EQ(gpu.device_memory_bytes, 140'000'000'000);
  EXPECT_EQ(gpu.device_overhead_bytes, like.device_overhead_bytes);
  EXPECT_DOUBLE_EQ(gpu.peak_flops.bf16, like.peak_flops.bf16);
  EXPECT_DOUBLE_EQ(gpu.gemm_efficiency, like.gemm_efficiency);
  EXPECT_TRUE(gpu.units.empty());  // of a core
  const Rates rank =
      rates_of(gpu, {.ranks = 4, .dtype = DType::kBFloat16, .multiplied_in = DType::kBFloat16});
  EXPECT_DOUBLE_EQ(rank.flops, 7e14 * like.gemm_efficiency);
  EXPECT_DOUBLE_EQ(rank.device_memory_bps, 4e12);
  EXPECT_DOUBLE_EQ(rank.device_adam, 4e12 / 28);
  EXPECT_DOUBLE_EQ(rank.h2d_bps, 55e9);
  EXPECT_DOUBLE_EQ(rank.d2h_bps, like.d2h_bps);    // not measured
  EXPECT_DOUBLE_EQ(rank.comm_bps, like.comm_bps);  // the host's is not the GPUs'
  EXPECT_DOUBLE_EQ(rank.disk_read_bps, 1.5e9);
  EXPECT_DOUBLE_EQ(rates_of(gpu, {.ranks = 4}).host_adam, 7e9 / 4);

  const MachineProfile cpu = measured_profile(rates, named_profile("cpu"));
  EXPECT_FALSE(cpu.gpu);
  EXPECT_DOUBLE_EQ(cpu.gemm_flops.fp32, 3e12);
  EXPECT_DOUBLE_EQ(cpu.h2d_bps, 9e9);
  EXPECT_EQ(cpu.units.size(), 1U);
}

// A card of the same name with less power or fewer multiprocessors.
TEST(MachineProfile, AttentionOfAGpuIsMeasuredOrFollowsItsProducts) {
  const MachineProfile like = named_profile("h100-sxm");
  MachineRates rates;
  rates.gpu = GpuRates{.name = "NVIDIA H100 PCIe", .memory_bytes = 80'000'000'000};
  const AttentionRates& flash = *like.attention_flops.flash;
  EXPECT_DOUBLE_EQ(measured_profile(rates, like).attention_flops.flash->head_64, flash.head_64);
  rates.gpu->gemm_flops.bf16 = like.gemm_flops.bf16 / 2;
  rates.gpu->attention_flops.cudnn = AttentionRates{1e14, 2e14, 3e14};
  const AttentionFlops half = measured_profile(rates, like).attention_flops;
  EXPECT_DOUBLE_EQ(half.flash->head_64, flash.head_64 / 2);
  EXPECT_DOUBLE_EQ(half.flash->head_128_long, flash.head_128_long / 2);
  EXPECT_DOUBLE_EQ(half.cudnn->head_128, 2e14);
}

TEST(MachineProfile, AttentionHasAllOfItsRatesOrNone) {
  const auto error_of = [](const std::string& text) {
    try {
      (void)parse_profile(R"({"attention_flops": )" + text + "}", "mine.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of(R"({"flash": null})"), "no error");
  EXPECT_THAT(error_of("450e12"),
              ::testing::HasSubstr("mine.json: 'attention_flops' is not an object of"));
  EXPECT_THAT(error_of(R"({"flash": 1})"), ::testing::HasSubstr("has no flash.head_64"));
  EXPECT_THAT(error_of(R"({"cudnn": {"head_64": 1e14, "head_128": 1e14}})"),
              ::testing::HasSubstr("has no cudnn.head_128_long"));
  EXPECT_THAT(error_of(R"({"flash": {"head_64": 0, "head_128": 1, "head_128_long": 1}})"),
              ::testing::HasSubstr("is not above 0"));
}

TEST(MachineProfile, AGpuThatNoProfileIsOfHasNobodysPeak) {
  GpuRates gpu{.name = "Another GPU", .memory_bytes = 16'000'000'000};
  gpu.gemm_flops = {1e13, 8e13};
  const MachineProfile like = profile_like(gpu);
  EXPECT_EQ(like.name, kDefaultGpu);
  MachineRates rates;
  rates.gpu = gpu;
  EXPECT_DOUBLE_EQ(measured_profile(rates, like).peak_flops.bf16, 8e13);
  // Of the GPU alone: whether, and how fast, it multiplies 8 bits, and its multiprocessors.
  EXPECT_EQ(measured_profile(rates, like).gemm_flops.fp8, 0);
  EXPECT_FALSE(measured_profile(rates, like).attention_flops.flash);
  EXPECT_EQ(measured_profile(rates, like).compute_capability, 0);
  EXPECT_EQ(measured_profile(rates, like).multiprocessors, 0);
  rates.gpu->compute_capability = 89;
  rates.gpu->multiprocessors = 58;
  rates.gpu->gemm_fp8_flops = 2e14;
  EXPECT_EQ(measured_profile(rates, like).gemm_flops.fp8, 2e14);
  EXPECT_EQ(measured_profile(rates, like).compute_capability, 89);
  EXPECT_EQ(measured_profile(rates, like).multiprocessors, 58);
  for (const auto& [name, profile] : {std::pair{"NVIDIA A100-SXM4-80GB", "a100-80g"},
                                      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                      {"NVIDIA GeForce RTX 3090", "rtx3090"},
                                      {"NVIDIA GeForce RTX 5090", "rtx5090"},
                                      {"NVIDIA GeForce RTX 4090", "rtx4090"}}) {
    gpu.name = name;
    EXPECT_EQ(profile_like(gpu).name, profile);
  }
}

TEST(MachineProfile, BrokenFilesAreRefusedByFieldName) {
  const auto refused = [](const std::string& text, const std::string& field) {
    try {
      (void)parse_profile(text, "mine.json");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("mine.json"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  refused("[", "JSON");
  refused(R"({"h2d_bsp": 1e9})", "h2d_bsp");
  refused(R"({"h2d_bps": -1})", "h2d_bps");
  refused(R"({"h2d_bps": "fast"})", "h2d_bps");
  refused(R"({"gemm_flops": 3})", "gemm_flops");
  refused(R"({"comm": {"latency_s": -2}})", "comm");
  refused(R"({"devices_per_node": 1.5})", "devices_per_node");
  EXPECT_THROW((void)parse_profile(R"({"format": "sluice-rates"})", "x"), IoError);
  EXPECT_THROW((void)named_profile("h1000"), ConfigError);
  EXPECT_THROW((void)named_profile("./nowhere.json"), IoError);
  EXPECT_DOUBLE_EQ(parse_profile(R"({"h2d_bps": null})", "x", named_profile("cpu")).h2d_bps,
                   named_profile("cpu").h2d_bps);
}

}  // namespace
}  // namespace sluice
