#include "zero/optimizer_rule.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice {
namespace {

TEST(OptimizerRule, EachTypeHasAKernelAndItsStates) {
  for (const OptimizerRule& rule : optimizer_rules()) {
    SCOPED_TRACE(keys_of(rule.type).name);
    EXPECT_EQ(&rule_of(rule.type), &rule);
    EXPECT_EQ(rule.states().front(), StateKind::kMaster);
    EXPECT_EQ(rule.moment_kinds().size(), rule.moments);
    for (std::size_t k = 0; k < rule.moments; ++k) {
      EXPECT_EQ(moment_index(rule.moment_kinds()[k]), k);
    }
    float p = 1, m = 0, v = 0, g = 1;
    rule.update({.master = &p, .moments = {&m, &v}, .grad = &g, .n = 1, .lr = 0.5});
    EXPECT_LT(p, 1) << "a step against the gradient";
    EXPECT_NE(m, 0);
    EXPECT_EQ(v != 0, rule.moments == 2);
  }
  EXPECT_EQ(rule_of(OptimizerType::kAdamW).moved_bytes(), 28);
  EXPECT_EQ(rule_of(OptimizerType::kAdamW).moved_bytes(DType::kBFloat16), 20);
}

TEST(OptimizerRule, WhatItCannotDoIsRefusedByKey) {
  OptimizerRule rule = rule_of(OptimizerType::kAdamW);
  EXPECT_NO_THROW(check_rule(rule, DType::kBFloat16));
  rule.narrow_moments = false;
  EXPECT_NO_THROW(check_rule(rule, DType::kFloat32));
  EXPECT_THROW(check_rule(rule, DType::kBFloat16), ConfigError);
  rule.scope = UpdateScope::kMatrix;
  EXPECT_THROW(check_rule(rule, DType::kFloat32), ConfigError);
}

}  // namespace
}  // namespace sluice
