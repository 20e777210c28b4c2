#include "runtime/observe/best_validation.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "runtime/observe/step_record.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

std::string step_line(std::int64_t step, std::optional<double> loss) {
  StepRecord record;
  record.step = step;
  record.eval_loss = loss;
  record.eval_losses = {{"books", 1.0}};
  return to_json_line(record) + "\n";
}

std::optional<ValidationLosses> losses_of(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("metrics.jsonl")) << text;
  return validation_losses(folder.file("metrics.jsonl"));
}

TEST(BestValidation, LastAndBest) {
  const auto losses = losses_of(step_line(1, {}) + step_line(10, 3.5) + step_line(11, {}) +
                                step_line(20, 3.25) + step_line(30, 3.25) + step_line(40, 3.75));
  ASSERT_TRUE(losses);
  EXPECT_EQ(losses->count, 4);
  EXPECT_EQ(losses->last.step, 40);
  EXPECT_EQ(losses->last.loss, 3.75);
  EXPECT_EQ(losses->best.step, 20);
  EXPECT_EQ(losses->best.loss, 3.25);
}

TEST(BestValidation, WhatDoesNotCount) {
  EXPECT_FALSE(losses_of(""));
  EXPECT_FALSE(losses_of(step_line(1, {})));
  EXPECT_FALSE(losses_of(step_line(1, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_FALSE(losses_of("{\"step\":5,\"eval_loss\":3."));  // a torn line
  EXPECT_FALSE(validation_losses("/nonexistent/metrics.jsonl"));
}

}  // namespace
}  // namespace sluice
