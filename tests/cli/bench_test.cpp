// The benchmarks as commands: fields and sanity of what they print, not times.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

// Standard output alone: progress goes to standard error.
nlohmann::json result_of(const Scratch& scratch, const std::string& arguments) {
  const Finished run = run_program(scratch, arguments + " --json 2>errors.txt | cat");
  nlohmann::json json = nlohmann::json::parse(run.output, nullptr, false);
  EXPECT_TRUE(json.is_object()) << run.output << scratch.read("errors.txt");
  return json;
}

TEST(Bench, StepAccountsForAllOfTheTime) {
  const Scratch scratch;
  write_tiny(scratch);
  const nlohmann::json json =
      result_of(scratch, "bench step tiny.yaml --steps 4 --warmup 1 --set zero.stage=2");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["dtype"], "fp32");
  EXPECT_EQ(json["step_ms"]["count"], 4);
  double floor = 0;
  for (const char* lane :
       {"forward", "backward", "loss_head", "comm_waited", "optimizer", "data", "other"}) {
    ASSERT_TRUE(json["lanes"].contains(lane)) << lane;
    EXPECT_GE(json["lanes"][lane]["ms"]["median"].get<double>(), 0) << lane;
    floor += json["lanes"][lane]["floor_ms"].get<double>();
  }
  EXPECT_NEAR(floor / json["floor_ms"].get<double>(), 1, 1e-9);
  EXPECT_GT(json["lanes"]["loss_head"]["ms"]["median"].get<double>(), 0);
  EXPECT_GT(json["gemm_flops_per_s"].get<double>(), 1e6);
  EXPECT_GT(json["memory"]["device_peak"].get<double>(), 1e5);
  EXPECT_GT(json["memory"]["resident_peak"].get<double>(), 1e7);
  EXPECT_FALSE(json["limit"].get<std::string>().empty());
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));  // the user's folder is not touched
}

TEST(Bench, CommMeasuresEveryTransport) {
  const Scratch scratch;
  const nlohmann::json json =
      result_of(scratch, "bench comm --ranks 3 --bytes 12KiB,100kB --rounds 2");
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["collectives"].size(), 2U * 2 * 4);
  for (const nlohmann::json& row : json["collectives"]) {
    EXPECT_GT(row["bytes_per_s"].get<double>(), 0);
    EXPECT_GT(row["to_gloo"].get<double>(), 0);
    EXPECT_EQ(row["bytes"].get<int>() % 12, 0);
  }
  EXPECT_EQ(json["copies"].size(), 2U);
}

TEST(Bench, CommOverOneTransportAlone) {
  const Scratch scratch;
  for (const char* transport : {"mapped", "local"}) {
    const nlohmann::json json = result_of(
        scratch, std::string("bench comm --bytes 4KiB --rounds 1 --transports ") + transport);
    ASSERT_EQ(json["collectives"].size(), 2U);
    EXPECT_EQ(json["collectives"][0]["transport"], transport);
    EXPECT_TRUE(json["collectives"][0]["to_gloo"].is_null());
  }
}

TEST(Bench, AdamOfEveryDtype) {
  const Scratch scratch;
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const nlohmann::json json = result_of(
        scratch, std::string("bench adam --elems 100k --threads 1 --rounds 2 --dtype ") + dtype);
    EXPECT_EQ(json["dtype"], dtype);
    EXPECT_EQ(json["elems"], 100'000);
    EXPECT_EQ(json["threads"], 1);
    EXPECT_GT(json["params_per_s"].get<double>(), 0);
    EXPECT_GT(json["of_limit"].get<double>(), 0);
  }
}

TEST(Bench, BadArgumentsAreUsageErrors) {
  const Scratch scratch;
  write_tiny(scratch);
  for (const char* arguments :
       {"bench", "bench step nothing.yaml", "bench step tiny.yaml --steps 0",
        "bench comm --ranks 1", "bench comm --bytes 1x", "bench comm --transports pigeon",
        "bench comm --bytes 1000TiB", "bench adam --elems 1e15", "bench adam --dtype int8"}) {
    const Finished run = run_program(scratch, arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << "\n" << run.output;
    EXPECT_FALSE(run.output.empty()) << arguments;
  }
}

}  // namespace
}  // namespace sluice::testing
