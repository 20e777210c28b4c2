#include "runtime/plan/machine_profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/base/error.hpp"

namespace sluice {
namespace {

TEST(MachineProfile, EveryShippedOneIsComplete) {
  const std::vector<std::string> names = profile_names();
  for (const char* name : {"h100-sxm", "h200", "a100-80g", "rtx4090", "cpu"}) {
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
