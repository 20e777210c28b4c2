// A whole examination with products that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/doctor/doctor.hpp"
#include "tests/runtime/doctor/fake_gpu.hpp"
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
  const DoctorReport report = examine(made_up(scratch.path()));
  const MachineRates& rates = report.rates;
  EXPECT_EQ(rates.gemm_flops.fp32, 3e11);
  EXPECT_EQ(rates.gemm_flops.bf16, 9e11);
  ASSERT_EQ(rates.gemm_by_threads.size(), 2U);  // 1 (the half) and 3
  EXPECT_NEAR(rates.comm->bps, 4e9, 1e6);
  EXPECT_TRUE(rates.not_measured.contains("peer"));
  EXPECT_EQ(rates.not_measured.at("gpu"), "no GPU is visible");
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
}

DoctorInput with_gpu(const std::string& folder) {
  DoctorInput input = made_up(folder);
  input.gpus = 2;
  input.gpu_effort = {.copy_bytes = 1 << 20,
                      .memory_bytes = 1 << 20,
                      .largest_side = 4096,
                      .product_s = 0.01,
                      .rounds = 2};
  input.pci_devices = folder;
  input.open_gpu = [] { return std::make_unique<testing::FakeGpu>(); };
  return input;
}

TEST(Examine, AGpuHasItsOwnNumbersBesideTheHosts) {
  const testing::Scratch scratch;
  const DoctorReport report = examine(with_gpu(scratch.path()));
  const MachineRates& rates = report.rates;
  ASSERT_TRUE(rates.gpu && report.facts.gpu);
  EXPECT_EQ(rates.gpu->count, 2);
  EXPECT_NEAR(*rates.gpu->gemm_flops.bf16, 6e14, 1e10);
  EXPECT_TRUE(rates.gpu->h2d_bps);
  // What CPU ranks have is measured as well.
  EXPECT_EQ(rates.gemm_flops.fp32, 3e11);
  EXPECT_TRUE(rates.h2d_bps && rates.comm);
  EXPECT_FALSE(rates.not_measured.contains("gpu"));
  EXPECT_THAT(rates.not_measured.at("peer"), HasSubstr("one GPU"));
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  EXPECT_NEAR(json["gpu"]["gemm_flops"]["fp16"].get<double>(), 7e14, 1e10);
  EXPECT_NEAR(json["gpu"]["device_memory_bps"].get<double>(), 4e12, 1e9);
  EXPECT_EQ(json["facts"]["gpu"]["cuda_driver"], "13.1");
  EXPECT_EQ(json["facts"]["gpu"]["free_bytes"], std::int64_t{64} << 30);
  EXPECT_TRUE(json["facts"]["gpu"]["pci"]["lanes"].is_null());
  const std::string text = describe(report);
  for (const char* part : {"GPU 0: NVIDIA H200", "the GPU's own", "600 TFLOP/s",
                           "matrix products of the CPU", "a CPU rank's, host and device in RAM"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Examine, AGpuThatCannotBeOpenedIsAReason) {
  const testing::Scratch scratch;
  DoctorInput input = with_gpu(scratch.path());
  input.open_gpu = []() -> std::unique_ptr<GpuDevice> { throw Error("built without CUDA"); };
  const DoctorReport report = examine(input);
  EXPECT_FALSE(report.rates.gpu || report.facts.gpu);
  EXPECT_EQ(report.rates.not_measured.at("gpu"), "built without CUDA");
  EXPECT_TRUE(report.rates.gemm_flops.fp32 && report.rates.comm);
  EXPECT_THAT(describe(report), HasSubstr("are visible, and not measured"));
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json["gpu"].is_null() && json["facts"]["gpu"].is_null());
}

TEST(Examine, GpusThatTheProgramCannotUseAreSwitchedOff) {
  const testing::Scratch scratch;
  DoctorInput input = with_gpu(scratch.path());
  input.gpu_fault = "2 GPUs are visible, and the CUDA module is not there";
  input.gpu_remedy = "build it";
  const DoctorReport report = examine(input);
  EXPECT_EQ(report.rates.not_measured.at("gpu"), input.gpu_fault);
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& f) { return f.what == input.gpu_fault; });
  ASSERT_NE(found, report.findings.end());
  EXPECT_EQ(found->kind, FindingKind::kOff);
  EXPECT_THAT(found->why, HasSubstr("are refused here"));
  EXPECT_EQ(found->do_, "build it");
}

TEST(Examine, HiddenGpusAreANote) {
  const testing::Scratch scratch;
  DoctorInput input = made_up(scratch.path());
  input.hidden_gpus = "the driver has 2 GPUs, but CUDA_VISIBLE_DEVICES='' hides all GPUs";
  const DoctorReport report = examine(input);
  EXPECT_THAT(report.rates.not_measured.at("gpu"), HasSubstr(input.hidden_gpus));
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& f) { return f.what == input.hidden_gpus; });
  ASSERT_NE(found, report.findings.end());
  EXPECT_EQ(found->kind, FindingKind::kNote);
  EXPECT_THAT(found->why, HasSubstr("take the CPU"));
}

TEST(Examine, ConvertedProductsGainFromThreadsAsFp32) {
  const testing::Scratch scratch;
  DoctorInput input = made_up(scratch.path());
  input.gemm.bf16 = [] { return NarrowMatmul{1e11, 2e11}; };
  EXPECT_EQ(examine(input).rates.gemm_by_threads.back().gemm_flops.bf16, 6e11);
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

TEST(Examine, SaysWhatIsMeasuredNextAndHowLongItTakes) {
  const testing::Scratch scratch;
  DoctorInput input = with_gpu(scratch.path());
  std::vector<std::string> told;
  input.progress = [&](const std::string& what, double about_s) {
    told.push_back(what);
    EXPECT_GT(about_s, 0) << what;
    EXPECT_LT(about_s, 30) << what;
  };
  (void)examine(input);
  EXPECT_EQ(told.size(), 8U);
  EXPECT_THAT(told, ::testing::Contains(HasSubstr("the disk of " + scratch.path())));
}

TEST(Examine, AnInterruptedOneWritesWhatItHas) {
  const testing::Scratch scratch;
  const testing::Scratch out;
  const std::string path = out.path() + "/rates.json";
  DoctorInput input = made_up(scratch.path());
  int measured = 0;
  input.progress = [&](const std::string&, double) { ++measured; };
  input.interrupted = [&] { return measured == 3; };  // products, units, memory
  const DoctorReport report = examine(input);
  EXPECT_TRUE(report.interrupted);
  EXPECT_TRUE(report.rates.gemm_flops.fp32 && report.rates.memory_triad_bps);
  EXPECT_FALSE(report.rates.h2d_bps || report.rates.disk_read_bps);
  for (const char* field : {"h2d_bps", "adam_params_per_s.bf16", "disk_both_bps"}) {
    EXPECT_THAT(report.rates.not_measured.at(field), HasSubstr("interrupted")) << field;
  }
  EXPECT_THAT(describe(report), HasSubstr("Interrupted: "));
  EXPECT_TRUE(write_rates(report, path));
  EXPECT_EQ(read_machine_rates(path).gemm_flops.fp32, 3e11);
  // A whole file is not replaced by a part; a broken one is.
  const DoctorReport whole = examine(made_up(scratch.path()));
  EXPECT_TRUE(write_rates(whole, path));
  EXPECT_FALSE(write_rates(report, path));
  EXPECT_TRUE(read_machine_rates(path).h2d_bps);
  std::ofstream(path) << "{";
  EXPECT_TRUE(write_rates(report, path));
}

TEST(Examine, QuickIsSmaller) {
  EXPECT_LT(doctor_effort(true).most_bytes, doctor_effort(false).most_bytes);
  EXPECT_LT(doctor_effort(true).disk_s, doctor_effort(false).disk_s);
  EXPECT_LT(comm_plan(true).bytes.back(), comm_plan(false).bytes.back());
  EXPECT_LT(comm_plan(true).rounds, comm_plan(false).rounds);
}

}  // namespace
}  // namespace sluice
