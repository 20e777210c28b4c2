// What a run multiplies its 16-bit matrices in (train.matmul), settled before its memory is
// planned. Pure but for the measurement it is given.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/run/train_options.hpp"

namespace sluice {

// FLOP/s of a linear layer with 16-bit operands, conversions included.
struct MatmulRates {
  double native = 0;
  double fp32 = 0;
};

struct MatmulQuestion {
  MatmulChoice choice = MatmulChoice::kAuto;
  DType dtype = DType::kFloat32;
  bool on_gpu = false;
  bool explicit_units = true;  // model.explicit_units; autograd multiplies natively
  // Of the checkpoint that the run goes on from: its bits depend on it.
  std::optional<MatmulType> resumed{};
};

struct MatmulDecision {
  MatmulType type = MatmulType::kNative;
  std::optional<MatmulRates> rates;  // where the decision needed them
  bool resumed = false;              // it was the checkpoint's
};

// `measure` is called at most once, and on the same question always or never: it may be collective.
// Throws ConfigError where fp32 is asked for on a GPU; the message begins with the key. REQUIRES:
// explicit_units where it is asked for (configs/validate.hpp sees to it).
[[nodiscard]] MatmulDecision choose_matmul(const MatmulQuestion& question,
                                           const std::function<MatmulRates()>& measure);

// "matrix products: bf16 (one thread runs a layer at 379 GFLOP/s in bf16, at 97 converted to
// fp32)"; empty in fp32.
[[nodiscard]] std::string describe_matmul(const MatmulDecision& decision, DType dtype);

// The word of train.matmul.
[[nodiscard]] std::string name_of(MatmulType type);

}  // namespace sluice
