// Chooses the type of a run's 16-bit matrix products (train.matmul) before memory is planned. Pure
// except for the given measurement.
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
  // The type of the checkpoint to resume, because the bits of the run depend on the type.
  std::optional<MatmulType> resumed{};
};

struct MatmulDecision {
  MatmulType type = MatmulType::kNative;
  std::optional<MatmulRates> rates;  // if the decision needed rates
  bool resumed = false;              // the checkpoint's type was taken
};

// Calls `measure` at most once. Whether `measure` is called depends only on the question, so
// `measure` may be collective. Throws ConfigError for fp32 on a GPU; the message begins with the
// key. REQUIRES: what fp32 and fp8 need (configs/parallel_rules.hpp).
[[nodiscard]] MatmulDecision choose_matmul(const MatmulQuestion& question,
                                           const std::function<MatmulRates()>& measure);

// "matrix products: bf16 (one thread runs a layer at 379 GFLOP/s in bf16, at 97 converted to
// fp32)"; empty in fp32.
[[nodiscard]] std::string describe_matmul(const MatmulDecision& decision, DType dtype);

// The word of train.matmul.
[[nodiscard]] std::string name_of(MatmulType type);

}  // namespace sluice
