// train.matmul: what is taken for which rates, and where nothing is measured.
#include "runtime/run/matmul_choice.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice::testing {
namespace {

MatmulDecision choose(MatmulQuestion question, MatmulRates rates, int* calls = nullptr) {
  return choose_matmul(question, [=] {
    if (calls != nullptr) ++*calls;
    return rates;
  });
}

TEST(MatmulChoice, AutoTakesWhatIsFaster) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const MatmulQuestion question{.dtype = dtype};
    EXPECT_EQ(choose(question, {400e9, 100e9}).type, MatmulType::kNative);
    EXPECT_EQ(choose(question, {20e9, 100e9}).type, MatmulType::kFp32);
    EXPECT_EQ(choose(question, {90e9, 100e9}).type, MatmulType::kFp32);
    // Within noise always the same.
    EXPECT_EQ(choose(question, {100e9, 101e9}).type, MatmulType::kNative);
    EXPECT_EQ(choose(question, {101e9, 100e9}).type, MatmulType::kNative);
  }
}

TEST(MatmulChoice, MeasuresOnlyWhereTheAnswerDependsOnIt) {
  const MatmulRates fp32_wins{10e9, 100e9};
  const auto bf16 = [](MatmulQuestion question) {
    question.dtype = DType::kBFloat16;
    return question;
  };
  int calls = 0;
  EXPECT_EQ(choose({}, fp32_wins, &calls).type, MatmulType::kNative);  // an fp32 run
  EXPECT_EQ(choose(bf16({.on_gpu = true}), fp32_wins, &calls).type, MatmulType::kNative);
  EXPECT_EQ(choose(bf16({.explicit_units = false}), fp32_wins, &calls).type, MatmulType::kNative);
  EXPECT_EQ(choose(bf16({.choice = MatmulChoice::kNative}), fp32_wins, &calls).type,
            MatmulType::kNative);
  EXPECT_EQ(choose(bf16({.choice = MatmulChoice::kFp32}), {}, &calls).type, MatmulType::kFp32);
  EXPECT_EQ(choose(bf16({.choice = MatmulChoice::kFp8}), {}, &calls).type, MatmulType::kFp8);
  EXPECT_EQ(
      choose(bf16({.choice = MatmulChoice::kFp8, .resumed = MatmulType::kFp32}), {}, &calls).type,
      MatmulType::kFp8);
  const MatmulDecision resumed = choose(bf16({.resumed = MatmulType::kFp32}), {}, &calls);
  EXPECT_EQ(resumed.type, MatmulType::kFp32);
  EXPECT_TRUE(resumed.resumed);
  EXPECT_EQ(
      choose(bf16({.choice = MatmulChoice::kNative, .resumed = MatmulType::kFp32}), {}, &calls)
          .type,
      MatmulType::kNative);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(choose(bf16({}), fp32_wins, &calls).rates.has_value());
  EXPECT_EQ(calls, 1);
}

TEST(MatmulChoice, RefusesWhatCannotBeHad) {
  MatmulQuestion question{.choice = MatmulChoice::kFp32, .dtype = DType::kBFloat16};
  question.on_gpu = true;
  EXPECT_THROW((void)choose(question, {}), ConfigError);
  question.on_gpu = false;
  question.explicit_units = false;
  EXPECT_THROW((void)choose(question, {}), Error);
}

TEST(MatmulChoice, IsSaidInWords) {
  const MatmulDecision measured{MatmulType::kFp32, MatmulRates{20e9, 100e9}};
  EXPECT_EQ(
      describe_matmul(measured, DType::kBFloat16),
      "matrix products: bf16 converted to fp32 (one thread runs a layer at 20 GFLOP/s in bf16, "
      "at 100 converted to fp32)");
  EXPECT_EQ(describe_matmul({MatmulType::kNative, {}, true}, DType::kBFloat16),
            "matrix products: bf16, as before the checkpoint");
  EXPECT_EQ(describe_matmul({MatmulType::kFp8, {}}, DType::kBFloat16),
            "matrix products: fp8 in blocks, others bf16");
  EXPECT_EQ(describe_matmul({}, DType::kFloat16), "matrix products: fp16");
  EXPECT_EQ(describe_matmul({}, DType::kFloat32), "");
}

}  // namespace
}  // namespace sluice::testing
