#include "runtime/plan/machine_rates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/posix/host_name.hpp"
#include "tests/runtime/doctor/scratch.hpp"

namespace sluice {
namespace {

using sluice::testing::Scratch;
using ::testing::HasSubstr;

MachineRates sample() {
  MachineRates rates;
  rates.host = "node-7";
  rates.measured_at = "2026-11-21T18:00:00Z";
  rates.quick = true;
  rates.threads = 12;
  rates.comm_ranks = 2;
  rates.nvme_path = "/data/swap";
  rates.gemm_flops = {1.5e12, std::nullopt};
  rates.memory_copy_bps = 1.0 / 3 * 1e10;
  rates.memory_triad_bps = 2e10;
  rates.memory_rmw_bps = 3e10;
  rates.adam_params_per_s = {1e9, 1.1e9};
  rates.h2d_bps = 4e9;
  rates.d2h_bps = 5e9;
  rates.disk_write_bps = 1e9;
  rates.disk_both_bps = 1.5e9;
  rates.comm = LinkRates{2e-5, 6e9};
  rates.gpu = GpuRates{.name = "NVIDIA H200", .count = 8, .memory_bytes = 149250113536};
  rates.gpu->gemm_flops = {5e13, std::nullopt};
  rates.gpu->gemm_fp16_flops = 7e14;
  rates.gpu->gemm_fp8_flops = 1.3e15;
  rates.gpu->attention_flops.flash = AttentionRates{1e14, 2e14, 3e14};
  rates.gpu->compute_capability = 120;
  rates.gpu->multiprocessors = 170;
  rates.gpu->device_memory_bps = 4.3e12;
  rates.gpu->h2d_bps = 5.1e10;
  rates.gemm_by_threads = {{1, {2e11, std::nullopt}}, {12, {1.5e12, 3e12}}};
  rates.units = {{"gpt2", "fp32", 256, 1e11, 1.5e11, 2e11, 9e10},
                 {"head", "bf16", 512, 3e11, 3e11, 3e11, 3e11}};
  rates.comm_by_transport = {{"gloo", {2e-4, 1e9}}, {"mapped", {2e-5, 6e9}}};
  rates.spread = {{"memory_copy_bps", 0.0}, {"h2d_bps", 0.04}};
  rates.not_measured = {{"disk_read_bps", "no space"}, {"gemm_flops.bf16", "no \"bf16\""}};
  return rates;
}

// The text of a rates file with one thing changed.
std::string changed(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json json = nlohmann::json::parse(machine_rates_json(sample()));
  change(json);
  return json.dump();
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_machine_rates(text, "rates.json");
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MachineRates, ComeBackFromTheFileAsTheyWere) {
  const Scratch scratch;
  const MachineRates rates = sample();
  const std::string path = scratch.path("new/folder/rates.json");
  write_machine_rates(rates, path);
  const MachineRates back = read_machine_rates(path);
  EXPECT_EQ(machine_rates_json(back), machine_rates_json(rates));
  EXPECT_EQ(back.memory_copy_bps, rates.memory_copy_bps);  // to the last bit
  EXPECT_EQ(back.gemm_flops.fp32, rates.gemm_flops.fp32);
  EXPECT_FALSE(back.gemm_flops.bf16);
  EXPECT_FALSE(back.disk_read_bps);
  EXPECT_FALSE(back.peer);
  EXPECT_EQ(back.comm->latency_s, 2e-5);
  EXPECT_EQ(back.comm_by_transport.at("gloo").bps, 1e9);
  EXPECT_EQ(back.gemm_by_threads[1].threads, 12);
  ASSERT_TRUE(back.gpu);
  EXPECT_EQ(back.gpu->name, "NVIDIA H200");
  EXPECT_EQ(back.gpu->count, 8);
  EXPECT_EQ(back.gpu->memory_bytes, 149250113536);
  EXPECT_EQ(back.gpu->gemm_flops.fp32, 5e13);
  EXPECT_FALSE(back.gpu->gemm_flops.bf16 || back.gpu->d2h_bps);
  EXPECT_EQ(back.gpu->gemm_fp16_flops, 7e14);
  EXPECT_EQ(back.gpu->gemm_fp8_flops, 1.3e15);
  EXPECT_EQ(back.gpu->attention_flops.flash->head_64, 1e14);
  EXPECT_EQ(back.gpu->attention_flops.flash->head_128_long, 3e14);
  EXPECT_FALSE(back.gpu->attention_flops.cudnn);
  EXPECT_EQ(back.gpu->compute_capability, 120);
  EXPECT_EQ(back.gpu->multiprocessors, 170);
  EXPECT_EQ(back.gpu->device_memory_bps, 4.3e12);
  EXPECT_EQ(back.gpu->h2d_bps, 5.1e10);
  ASSERT_EQ(back.units.size(), 2U);
  EXPECT_EQ(back.units[0].unit, "gpt2");
  EXPECT_EQ(back.units[1].dtype, "bf16");
  EXPECT_EQ(back.units[1].hidden, 512);
  EXPECT_EQ(back.units[0].backward_flops, 1.5e11);
  EXPECT_EQ(back.units[0].attention_forward_flops, 2e11);
  EXPECT_EQ(back.units[0].attention_backward_flops, 9e10);
  EXPECT_EQ(back.not_measured, rates.not_measured);
  EXPECT_EQ(back.spread, rates.spread);
  EXPECT_TRUE(back.quick);
  EXPECT_EQ(back.threads, 12);
  write_machine_rates(back, path);  // over an old one, with nothing left beside it
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path("new/folder")), {}), 1);
}

TEST(MachineRates, NothingMeasuredIsAFileToo) {
  const MachineRates back = parse_machine_rates(machine_rates_json({}), "rates.json");
  EXPECT_FALSE(back.gemm_flops.fp32 || back.comm || back.h2d_bps || back.disk_read_bps);
  EXPECT_FALSE(back.gpu);
  EXPECT_EQ(machine_rates_json({}).find(": 0.0"), std::string::npos);
}

TEST(MachineRates, FieldsOfLaterProgramsAreIgnored) {
  const std::string text = changed([](auto& json) {
    json["rates"]["warp_bps"] = "fast";
    json["facts"] = {{"x", 1}};
    json["rates"].erase("disk_both_bps");
  });
  EXPECT_FALSE(parse_machine_rates(text, "rates.json").disk_both_bps);
}

TEST(MachineRates, ABrokenFileIsOneClearError) {
  const std::string whole = machine_rates_json(sample());
  for (const std::string& text : {std::string(), std::string("null"), std::string("[]"),
                                  std::string("\xff\x00", 2), whole.substr(0, whole.size() / 2)}) {
    EXPECT_THAT(error_of(text), HasSubstr("the rates file rates.json is broken")) << text;
    EXPECT_THAT(error_of(text), HasSubstr("sluice doctor")) << text;
  }
  EXPECT_THAT(error_of(changed([](auto& j) { j["version"] = 2; })), HasSubstr("'version'"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["format"] = "x"; })), HasSubstr("'format'"));
  EXPECT_THAT(error_of(changed([](auto& j) { j.erase("rates"); })),
              HasSubstr("'rates' is missing"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["gpu"]["h2d_bps"] = 0; })),
              HasSubstr("'gpu.h2d_bps' is not positive"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["gpu"] = 3; })),
              HasSubstr("'gpu' is not an object"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["rates"]["h2d_bps"] = "4e9"; })),
              HasSubstr("'rates.h2d_bps' is not a number"));
  for (const double value : {0.0, -1.0}) {
    EXPECT_THAT(error_of(changed([&](auto& j) { j["rates"]["gemm_flops"]["bf16"] = value; })),
                HasSubstr("'rates.gemm_flops.bf16' is not positive"));
  }
  EXPECT_THAT(error_of(changed([](auto& j) { j["rates"]["comm"].erase("bps"); })),
              HasSubstr("'rates.comm.bps' is missing"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["comm_by_transport"]["gloo"] = 3; })),
              HasSubstr("'comm_by_transport.gloo' is not an object"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["gemm_by_threads"] = 3; })),
              HasSubstr("'gemm_by_threads' is not a list"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["units"] = 3; })),
              HasSubstr("'units' is not a list"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["units"][0].erase("backward_flops"); })),
              HasSubstr("'units[].backward_flops' is missing"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["units"][1]["hidden"] = 0; })),
              HasSubstr("'units[].hidden' is not positive"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["spread"]["h2d_bps"] = -1; })),
              HasSubstr("'spread.h2d_bps' is not a share"));
  EXPECT_THAT(error_of(changed([](auto& j) { j["threads"] = 1.5; })), HasSubstr("'threads'"));
}

TEST(MachineRates, FoundByEnvironmentOrHome) {
  const Scratch scratch;
  ::unsetenv("SLUICE_RATES");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", scratch.path("home").c_str(), 1);
  const std::string at_home =
      scratch.path("home") + "/.cache/sluice/rates-" + host_name() + ".json";
  EXPECT_EQ(machine_rates_path(), at_home);
  EXPECT_FALSE(find_machine_rates());
  write_machine_rates(sample(), at_home);
  EXPECT_EQ(find_machine_rates()->host, "node-7");
  ::setenv("XDG_CACHE_HOME", scratch.path("cache").c_str(), 1);
  EXPECT_FALSE(find_machine_rates());
  ::setenv("SLUICE_RATES", scratch.path("named.json").c_str(), 1);
  EXPECT_EQ(machine_rates_path(), scratch.path("named.json"));
  EXPECT_THROW((void)find_machine_rates(), IoError);  // named, so it must be there
  scratch.write("named.json", "{");
  EXPECT_THROW((void)find_machine_rates(), IoError);
  ::unsetenv("SLUICE_RATES");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_THROW((void)machine_rates_path(), ConfigError);
  EXPECT_FALSE(find_machine_rates());  // a plan needs none
}

TEST(MachineRates, AFolderThatCannotBeIsOneClearError) {
  const Scratch scratch;
  scratch.write("file", "");
  try {
    write_machine_rates(sample(), scratch.path("file") + "/rates.json");
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--out"));
    EXPECT_EQ(error.path(), scratch.path("file") + "/rates.json");
  }
}

}  // namespace
}  // namespace sluice
