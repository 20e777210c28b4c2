// `sluice doctor` and `sluice bench nvme` as commands: fields, sanity and exit codes, not speed.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

constexpr const char* kRateFields[] = {"memory_copy_bps", "memory_triad_bps", "memory_rmw_bps",
                                       "h2d_bps",         "d2h_bps",          "h2d_d2h_bps",
                                       "disk_read_bps",   "disk_write_bps",   "disk_both_bps"};

// A number between the bounds, or null with a reason.
void expect_rate(const nlohmann::json& file, const nlohmann::json& value, const std::string& field,
                 double least, double most) {
  if (value.is_null()) {
    EXPECT_FALSE(file["not_measured"].value(field, "").empty()) << field;
    return;
  }
  EXPECT_FALSE(file["not_measured"].contains(field)) << field;
  EXPECT_GT(value.get<double>(), least) << field;
  EXPECT_LT(value.get<double>(), most) << field;
}

void expect_sane(const nlohmann::json& file) {
  const nlohmann::json& rates = file["rates"];
  for (const char* field : kRateFields) {
    ASSERT_TRUE(rates.contains(field)) << field;
    expect_rate(file, rates[field], field, 1e5, 1e13);
  }
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string suffix = std::string(".") + dtype;
    expect_rate(file, rates["gemm_flops"][dtype], "gemm_flops" + suffix, 1e7, 1e16);
    expect_rate(file, rates["adam_params_per_s"][dtype], "adam_params_per_s" + suffix, 1e5, 1e12);
  }
  EXPECT_NE(file["gpu"].is_null(), !file["not_measured"].contains("gpu"));
  for (const char* link : {"comm", "peer"}) {
    ASSERT_TRUE(rates.contains(link)) << link;
    const bool measured = !rates[link].is_null();
    EXPECT_NE(measured, file["not_measured"].contains(link)) << link;
    if (!measured) continue;
    expect_rate(file, rates[link]["latency_s"], link, 1e-8, 10);
    expect_rate(file, rates[link]["bps"], link, 1e4, 1e13);
  }
}

// The program's own environment, as a program of the user would see it.
std::string own_environment(const std::map<std::string, std::string>& given) {
  const Scratch scratch;
  const Finished ids =
      run_program(scratch, "tokenizer encode --tokenizer bytes /proc/self/environ", given);
  scratch.write("ids.txt", ids.output);
  return run_program(scratch, "tokenizer decode --tokenizer bytes ids.txt", given).output;
}

TEST(Doctor, ThreadsSpinShortlyUnlessTheUserChose) {
  EXPECT_NE(own_environment({}).find("GOMP_SPINCOUNT=10000"), std::string::npos);
  const std::string active = own_environment({{"OMP_WAIT_POLICY", "active"}});
  EXPECT_NE(active.find("OMP_WAIT_POLICY=active"), std::string::npos);
  EXPECT_EQ(active.find("GOMP_SPINCOUNT"), std::string::npos);
  EXPECT_NE(own_environment({{"GOMP_SPINCOUNT", "7"}}).find("GOMP_SPINCOUNT=7"), std::string::npos);
}

TEST(Doctor, QuickMeasuresEverythingAndWritesTheFile) {
  const Scratch scratch;
  const Finished run = run_program(
      scratch, "doctor --quick --json --nvme-path {} --out new/rates.json 2>errors.txt | cat");
  const nlohmann::json report = nlohmann::json::parse(run.output, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.output << scratch.read("errors.txt");
  expect_sane(report);
  for (const char* part : {"doctor: about 10 s", "doctor: measuring collectives of 2 ranks, about ",
                           "doctor: measuring matrix products, about "}) {
    EXPECT_NE(scratch.read("errors.txt").find(part), std::string::npos) << part;
  }
  EXPECT_TRUE(report["quick"]);
  EXPECT_GT(report["seconds"].get<double>(), 0);
  EXPECT_GE(report["facts"]["processor"]["cores"].get<int>(), 1);
  EXPECT_TRUE(report["facts"]["memory"].contains("memlock_bytes"));
  EXPECT_EQ(report["facts"]["processor"]["spin_count"], "10000");
  EXPECT_TRUE(report["facts"]["disk"]["io_uring"].is_boolean());
  EXPECT_FALSE(report["facts"]["nodes"].empty());
  EXPECT_FALSE(report["rates"]["comm"].is_null()) << report["not_measured"];
  EXPECT_FALSE(report["rates"]["gemm_flops"]["fp32"].is_null()) << report["not_measured"];
  if (report["facts"]["gpus"] == 0) {
    EXPECT_TRUE(report["gpu"].is_null());
    EXPECT_EQ(report["not_measured"]["gpu"], "no GPU is visible");
  }
  for (const nlohmann::json& finding : report["findings"]) {
    EXPECT_FALSE(finding["what"].get<std::string>().empty());
    EXPECT_FALSE(finding["why"].get<std::string>().empty()) << finding;
  }
  const nlohmann::json file = nlohmann::json::parse(scratch.read("new/rates.json"));
  EXPECT_EQ(file["rates"], report["rates"]);
  EXPECT_EQ(file["not_measured"], report["not_measured"]);
  int left = 0;  // nothing but what was asked for
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    ++left;
  }
  EXPECT_EQ(left, 2);  // new, errors.txt
}

TEST(Doctor, BadArgumentsAreUsageErrors) {
  const Scratch scratch;
  scratch.write("file", "");
  for (const char* arguments :
       {"doctor --fast", "doctor now", "doctor --nvme-path nothing", "doctor --nvme-path file",
        "bench nvme", "bench nvme nothing", "bench nvme . --blocks 1x",
        "bench nvme . --blocks 5000", "bench nvme . --depths 0", "bench nvme . --bytes 0"}) {
    const Finished run = run_program(scratch, arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << "\n" << run.output;
    EXPECT_FALSE(run.output.empty()) << arguments;
  }
  EXPECT_EQ(run_program(scratch, "doctor", environment_of_rank_0(1)).exit_code, 2);
}

TEST(Doctor, BenchNvmeSweepsAndAdvises) {
  const Scratch scratch;
  const std::string command =
      "bench nvme {} --bytes 300001 --blocks 8KiB,16KiB --depths 1,3 --json 2>errors.txt | cat";
  const Finished run = run_program(scratch, command);
  const nlohmann::json json = nlohmann::json::parse(run.output, nullptr, false);
  if (!json.is_object() && scratch.read("errors.txt").find("O_DIRECT") != std::string::npos) {
    GTEST_SKIP() << "the temporary folder's file system has no O_DIRECT";
  }
  ASSERT_TRUE(json.is_object()) << run.output << scratch.read("errors.txt");
  EXPECT_EQ(json["points"].size(), 2U * 2 * 3);
  for (const nlohmann::json& point : json["points"]) {
    EXPECT_GT(point["bytes_per_s"].get<double>(), 0);
  }
  EXPECT_TRUE(json["best"]["block_bytes"] == 8192 || json["best"]["block_bytes"] == 16384);
  EXPECT_GT(json["best"]["read_bytes_per_s"].get<double>(), 0);
}

}  // namespace
}  // namespace sluice::testing
