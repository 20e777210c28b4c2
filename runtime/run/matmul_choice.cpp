#include "runtime/run/matmul_choice.hpp"

#include <cstdio>

#include "base/error.hpp"

namespace sluice {
namespace {

// The threshold is above the measurement's noise, so a restarted run repeats its bits.
constexpr double kClearlyFaster = 1.1;

}  // namespace

MatmulDecision choose_matmul(const MatmulQuestion& question,
                             const std::function<MatmulRates()>& measure) {
  if (question.dtype == DType::kFloat32) return {};
  if (question.choice == MatmulChoice::kFp32) {
    if (question.on_gpu) {
      throw ConfigError(
          "train.matmul: fp32 is for runs on CPUs, and this one runs on GPUs, which multiply "
          "16-bit "
          "matrices faster; leave it out");
    }
    check(question.explicit_units, "train.matmul: fp32 needs blocks with a written-out backward");
    return {MatmulType::kFp32, {}};
  }
  if (question.choice == MatmulChoice::kFp8) return {MatmulType::kFp8, {}};
  if (question.choice == MatmulChoice::kNative || question.on_gpu || !question.explicit_units) {
    return {};
  }
  if (question.resumed) return {*question.resumed, {}, true};
  const MatmulRates rates = measure();
  return {rates.fp32 > kClearlyFaster * rates.native ? MatmulType::kFp32 : MatmulType::kNative,
          rates};
}

std::string describe_matmul(const MatmulDecision& decision, DType dtype) {
  if (dtype == DType::kFloat32) return {};
  const std::string own(name_of(dtype));
  if (decision.type == MatmulType::kFp8) return "matrix products: fp8 in blocks, others " + own;
  const bool fp32 = decision.type == MatmulType::kFp32;
  std::string text = "matrix products: " + (fp32 ? own + " converted to fp32" : own);
  if (decision.resumed) return text + ", as before the checkpoint";
  if (!decision.rates) return text;
  char rates[128];
  std::snprintf(rates, sizeof rates,
                " (one thread runs a layer at %.0f GFLOP/s in %s, at %.0f converted to fp32)",
                decision.rates->native * 1e-9, own.c_str(), decision.rates->fp32 * 1e-9);
  return text + rates;
}

std::string name_of(MatmulType type) {
  switch (type) {
    case MatmulType::kNative:
      return "native";
    case MatmulType::kFp32:
      return "fp32";
    case MatmulType::kFp8:
      return "fp8";
  }
  return "native";
}

}  // namespace sluice
