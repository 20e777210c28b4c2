// output.nvtx: a tool that is loaded as Nsight Systems is sees every operation of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class Nvtx : public ::testing::Test {
 protected:
  Nvtx() { write_tiny(scratch_); }

  Finished train(const std::string& arguments) {
    return run_program(scratch_,
                       "train tiny.yaml --nproc 1 --set train.steps=3 --set output.trace=true"
                       " --set train.eval_steps=0 --set model.hidden=32 --set model.seq=32 " +
                           arguments,
                       {{"NVTX_INJECTION64_PATH", NVTX_TOOL}, {"NVTX_TOOL_LOG", log_}});
  }
  std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::istringstream in(scratch_.read("nvtx.log"));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // Names of the measured operations of the last step, without waits.
  std::set<std::string> traced() const {
    std::set<std::string> names;
    const auto trace = nlohmann::json::parse(scratch_.read("run/trace.json"));
    for (const auto& event : trace.at("traceEvents")) {
      const std::string name = event.at("name");
      if (event.at("ph") == "X" && event.at("pid") == 0 && !name.starts_with("wait for ")) {
        names.insert(name);
      }
    }
    return names;
  }

  Scratch scratch_;
  const std::string log_ = scratch_.path("nvtx.log");
};

TEST_F(Nvtx, AToolSeesEveryOperationOfAStepOnTheThreadOfItsLane) {
  const Finished run = train("--set output.nvtx=true" + everything_on("nvme"));
  if (run.output.find("built without NVTX") != std::string::npos) GTEST_SKIP() << run.output;
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::map<std::string, std::vector<std::string>> open;  // by thread
  std::map<std::string, std::string> thread_names;
  std::map<std::string, std::string> ranges;
  std::set<std::string> in_last_step;
  std::set<std::string> completed;
  bool last_step = false;
  for (const std::string& line : calls()) {
    std::istringstream words(line);
    std::string thread, call, text;
    words >> thread >> call >> std::ws;
    std::getline(words, text);
    if (call == "name") thread_names[thread] = text;
    if (call == "push") {
      if (text == "step 3") last_step = true;
      if (last_step) in_last_step.insert(text);
      open[thread].push_back(text);
    }
    if (call == "pop") {
      ASSERT_FALSE(open[thread].empty()) << line;
      if (open[thread].back() == "step 3") last_step = false;
      open[thread].pop_back();
    }
    if (call == "start") ranges[text.substr(0, text.find(' '))] = text.substr(text.find(' ') + 1);
    if (call == "end") completed.insert(ranges.at(text));
  }
  for (const auto& [thread, left] : open) EXPECT_TRUE(left.empty()) << thread;
  for (const std::string& name : traced()) EXPECT_TRUE(in_last_step.contains(name)) << name;
  EXPECT_TRUE(std::any_of(completed.begin(), completed.end(),
                          [](const std::string& name) { return name.starts_with("ReadStates"); }));
  std::set<std::string> names;
  for (const auto& [thread, name] : thread_names) EXPECT_TRUE(names.insert(name).second) << name;
  for (const char* const lane : {"compute", "host", "disk"}) {
    EXPECT_TRUE(names.contains(lane)) << lane;
  }
}

TEST_F(Nvtx, AToolSeesNothingUnasked) {
  const Finished run = train("");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(std::filesystem::exists(log_));
}

}  // namespace
}  // namespace sluice::testing
