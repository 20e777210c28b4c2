// What the benchmarks compute from their measurements. That a number is a time of this machine is
// not tested: sizes are tiny and the machine is busy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "runtime/bench/adam_bench.hpp"
#include "runtime/bench/comm_bench.hpp"
#include "runtime/bench/step_bench.hpp"
#include "runtime/bench/table.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kTableColumns) << line;
}

TEST(Summary, MedianAndDeviation) {
  const Summary odd = summarize({5, 1, 9, 2, 3});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.mad, 2);  // of 2 2 6 1 0
  EXPECT_EQ(odd.best, 1);
  EXPECT_EQ(odd.count, 5);
  EXPECT_EQ(summarize({4, 2}).median, 3);
  EXPECT_EQ(summarize({}).count, 0);
}

TEST(Table, UnitsAndColumns) {
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(-4.56e-6), "-4.56 us");
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_byte_rate(9.996e9), "10.0 GB/s");
  EXPECT_EQ(format_table({{"", "a"}, {"row", "10"}}), "      a\nrow  10\n");
  const std::string text = wrap(std::string(79, 'x') + " yy zz");
  EXPECT_EQ(text, std::string(79, 'x') + "\nyy zz\n");
  EXPECT_EQ(wrap(std::string(100, 'x')), std::string(100, 'x') + "\n");
}

TEST(AdamBench, CountsTheBytesOfItsDtype) {
  for (const auto& [dtype, bytes] : {std::pair{DType::kFloat32, 28}, {DType::kBFloat16, 28}}) {
    const AdamBenchResult result =
        run_adam_bench({.elems = 4'000'001, .threads = 2, .dtype = dtype, .rounds = 3});
    EXPECT_EQ(result.bytes_per_param, bytes);
    EXPECT_EQ(result.adam.count, 3);
    EXPECT_NEAR(result.bytes_per_s, result.params_per_s * bytes, 1e-6 * result.bytes_per_s);
    EXPECT_GT(result.of_limit, 0);
    expect_narrow(describe(result));
    EXPECT_EQ(Json::parse(to_json(result))["dtype"], name_of(dtype));
  }
}

TEST(AdamBench, RefusesWhatCannotFit) {
  try {
    (void)run_adam_bench({.elems = std::int64_t{1} << 50});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--elems"), std::string::npos);
  }
}

TEST(CommBench, RoundsSizesToWholeSharesAndComparesWithTheCopy) {
  CommBenchOptions options;
  options.ranks = 3;
  options.transports = {Transport::kLocal};
  options.bytes = {1, 100'001};
  options.rounds = 3;
  EXPECT_EQ(options.processes(), 1);
  const CommBenchResult result = run_comm_bench(options, {});
  ASSERT_EQ(result.rows.size(), 4U);
  EXPECT_EQ(result.rows[0].bytes, 12);
  EXPECT_EQ(result.rows[2].bytes, 99'996);
  for (const CommRow& row : result.rows) {
    EXPECT_EQ(row.seconds.count, 3);
    EXPECT_NEAR(row.received_per_s / row.bytes_per_s, 2.0 / 3, 1e-12);
    EXPECT_EQ(row.to_gloo, 0);  // not measured
  }
  expect_narrow(describe(result));
  EXPECT_TRUE(Json::parse(to_json(result))["collectives"][0]["to_gloo"].is_null());
}

// A run of two counted steps: a rank's 2e9 FLOPs a step against a machine of 10 GFLOP/s.
class StepBench : public ::testing::Test {
 protected:
  StepBench() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream metrics(dir_ + "/metrics.jsonl");
    for (const auto& [step, ms] : {std::pair{1, 9000.0}, {2, 1000.0}, {3, 500.0}}) {
      const double tflops = 2e9 / ms * 1e3 * 1e-12;
      metrics << Json{{"step", step},
                      {"step_ms", ms},
                      {"tokens_per_s", 64 / ms * 1e3},
                      {"tflops", tflops},
                      {"mfu", tflops * 1e12 / 1e10},
                      {"memory",
                       {{"device_peak", 100 * step}, {"host_peak", 7}, {"resident_peak", 1000}}},
                      {"timers_ms",
                       {{"forward", 0.4 * ms},
                        {"backward", 0.3 * ms},
                        {"comm", 0.1 * ms},
                        {"optimizer", 0.05 * ms},
                        {"data", 0.0}}}}
              << "\n";
    }
    std::ofstream(dir_ + "/trace.json")
        << R"({"traceEvents": [{"name": "Forward unit 0, micro-batch 0", "dur": 10},
               {"name": "wait for LossHead unit 1, micro-batch 0", "dur": 1000},
               {"name": "LossHead unit 1, micro-batch 0", "dur": 30}, {"ph": "M"}]})";
  }
  ~StepBench() override { std::filesystem::remove_all(dir_); }

  StepBenchRun run() const {
    return {.config = "x.yaml",
            .run_dir = dir_,
            .ranks = 2,
            .dtype = "fp32",
            .warmup = 1,
            .gemm_flops_per_s = 1e9,
            .loss_head_share = 0.25};
  }
  std::string dir_;
};

TEST_F(StepBench, LanesAddUpToTheStepAndTheirFloorsToItsFloor) {
  const StepBenchResult result = read_step_bench(run());
  EXPECT_EQ(result.step_ms.count, 2);
  EXPECT_EQ(result.step_ms.median, 750);
  EXPECT_NEAR(result.tokens_per_s, 64 / 0.75, 1e-9);
  EXPECT_NEAR(result.gemm_flops_per_s, 1e10, 1);  // the better of the two measurements
  EXPECT_NEAR(result.floor_ms, 200, 1e-6);
  EXPECT_NEAR(result.of_gemm, 200.0 / 750, 1e-9);
  EXPECT_EQ(result.device_peak_bytes, 300);
  EXPECT_EQ(result.resident_peak_bytes, 1000);  // not what the host tier holds
  double ms = 0;
  double floor = 0;
  double head = 0;
  for (const StepLane& lane : result.lanes) {
    ms += lane.ms.median;
    floor += lane.floor_ms;
    if (lane.name == "loss_head") head = lane.ms.median;
  }
  EXPECT_NEAR(ms, 750, 1e-6);
  EXPECT_NEAR(floor, 200, 1e-6);
  EXPECT_NEAR(head, 0.75 * 0.4 * 750, 1e-6);  // the trace: 30 of 40
  expect_narrow(describe(result));
  const Json json = Json::parse(to_json(result));
  EXPECT_NEAR(json["left_ms"].get<double>(), 550, 1e-6);
}

TEST_F(StepBench, SaysWhatIsMissing) {
  StepBenchRun all_warmup = run();
  all_warmup.warmup = 3;
  EXPECT_THROW((void)read_step_bench(all_warmup), IoError);
  std::filesystem::remove(dir_ + "/trace.json");
  EXPECT_THROW((void)read_step_bench(run()), IoError);
}

}  // namespace
}  // namespace sluice
