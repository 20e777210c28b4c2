// Fixture of the tests that use a trained model. gtest.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/program.hpp"

namespace sluice::testing {

inline constexpr const char* kPhrase = "the quick brown fox jumps over the lazy dog; ";
inline constexpr const char* kUse = "--checkpoint ckpt --temperature 0 ";

// A model that has learned one phrase, trained once for all tests of the binary.
class Trained : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    std::string text;
    for (int i = 0; i < 400; ++i) text += kPhrase;
    scratch_->write("text.txt", text);
    scratch_->write("more.txt", text.substr(0, 700));
    scratch_->write("less.txt", text.substr(0, 301));
    scratch_->write("tiny.yaml",
                    "model: {type: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, seq: 64}\n"
                    "data: {text: [text.txt]}\n"
                    "train: {steps: 40, micro_batch: 4, eval_steps: 2, log_every: 10}\n"
                    "optimizer: {lr: 1e-2}\n"
                    "schedule: {type: constant}\n"
                    "launch: {nproc: 1, threads: 1, timeout: 20s}\n"
                    "checkpoint: {dir: ckpt}\n"
                    "output: {dir: run}\n");
    train_ = new Finished(run_program(*scratch_, "train tiny.yaml"));
  }
  static void TearDownTestSuite() {
    delete scratch_;
    delete train_;
  }
  void SetUp() override { ASSERT_EQ(train_->exit_code, 0) << train_->output; }

  static Finished run(const std::string& arguments) { return run_program(*scratch_, arguments); }
  static nlohmann::json json_of(const std::string& arguments) {
    const Finished done = run(arguments + " --json");
    EXPECT_EQ(done.exit_code, 0) << done.output;
    const std::size_t begin = done.output.find('{');
    if (done.exit_code != 0 || begin == std::string::npos) return {};
    return nlohmann::json::parse(done.output.substr(begin));
  }
  static void expect_error(const std::string& arguments, int exit_code,
                           const std::string& message) {
    const Finished done = run(arguments);
    EXPECT_EQ(done.exit_code, exit_code) << done.output;
    EXPECT_NE(done.output.find(message), std::string::npos) << done.output;
  }

  inline static Scratch* scratch_ = nullptr;
  inline static Finished* train_ = nullptr;
};

}  // namespace sluice::testing
