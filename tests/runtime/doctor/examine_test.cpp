// A whole examination with products that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "runtime/doctor/doctor.hpp"
#include "tests/runtime/doctor/scratch.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

DoctorInput made_up(const std::string& folder) {
  DoctorInput input;
  input.quick = true;
  input.effort = {.least_bytes = 1 << 20, .most_bytes = 1 << 22, .rounds = 2, .disk_s = 0.01};
  input.nvme_path = folder;
  input.threads = 3;
  input.gemm.flops = [](DType dtype, int threads) {
    return (dtype == DType::kFloat32 ? 1e11 : 3e11) * threads;
  };
  input.gemm.bf16 = [] { return NarrowMatmul{2e11, 1e11}; };
  for (const double bytes : {1e3, 1e6}) {
    input.comm.push_back({"mapped", "all_gather", bytes, 1e-5 + bytes / 4e9});
  }
  return input;
}

TEST(Examine, EveryFieldIsARateOrHasAReason) {
  const testing::Scratch scratch;
  DoctorInput input = made_up(scratch.path());
  const DoctorReport report = examine(input);
  const MachineRates& rates = report.rates;
  EXPECT_EQ(rates.gemm_flops.fp32, 3e11);
  EXPECT_EQ(rates.gemm_flops.bf16, 9e11);
  ASSERT_EQ(rates.gemm_by_threads.size(), 2U);  // 1 (the half) and 3
  EXPECT_NEAR(rates.comm->bps, 4e9, 1e6);
  EXPECT_TRUE(rates.not_measured.contains("peer"));
  EXPECT_FALSE(rates.not_measured.contains("comm"));
  EXPECT_GT(report.seconds, 0);
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  for (const char* key : {"gemm_flops", "adam_params_per_s"}) {
    for (const auto& [dtype, value] : json["rates"][key].items()) {
      EXPECT_NE(value.is_null(), !rates.not_measured.contains(std::string(key) + "." + dtype));
    }
  }
  EXPECT_THAT(describe(report), HasSubstr("AdamW bf16"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));

  // With a GPU the same host says nothing about what the GPU does.
  input.gpus = 1;
  input.comm.clear();
  input.gemm.bf16 = [] { return NarrowMatmul{1e11, 2e11}; };
  const DoctorReport gpu = examine(input);
  EXPECT_FALSE(gpu.rates.gemm_flops.fp32 || gpu.rates.h2d_bps || gpu.rates.comm);
  for (const char* field : {"gemm_flops.bf16", "h2d_bps", "d2h_bps", "comm", "peer"}) {
    EXPECT_THAT(gpu.rates.not_measured.at(field), HasSubstr("GPU")) << field;
  }
  EXPECT_TRUE(gpu.rates.memory_copy_bps);
  // Converted products, with fp32's gain from threads.
  EXPECT_EQ(gpu.rates.gemm_by_threads.back().gemm_flops.bf16, 6e11);
}

TEST(Examine, AFailedMeasurementIsAReasonAndTheOthersGoOn) {
  const testing::Scratch scratch;
  DoctorInput input = made_up(scratch.path());
  input.gemm.bf16 = []() -> NarrowMatmul { throw Error("no such instruction"); };
  input.comm.clear();
  input.comm_missing = "no ports";
  const DoctorReport report = examine(input);
  EXPECT_FALSE(report.rates.gemm_flops.fp32 || report.rates.comm);
  EXPECT_EQ(report.rates.not_measured.at("gemm_flops.fp32"), "no such instruction");
  EXPECT_EQ(report.rates.not_measured.at("comm"), "no ports");
  EXPECT_TRUE(report.rates.memory_copy_bps && report.rates.adam_params_per_s.bf16);
  EXPECT_THAT(describe(report), HasSubstr("not measured: comm: no ports"));
}

TEST(Examine, QuickIsSmaller) {
  EXPECT_LT(doctor_effort(true).most_bytes, doctor_effort(false).most_bytes);
  EXPECT_LT(doctor_effort(true).disk_s, doctor_effort(false).disk_s);
  EXPECT_LT(comm_plan(true).bytes.back(), comm_plan(false).bytes.back());
  EXPECT_LT(comm_plan(true).rounds, comm_plan(false).rounds);
}

}  // namespace
}  // namespace sluice
