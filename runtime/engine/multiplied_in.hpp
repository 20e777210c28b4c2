// The type in which a run multiplies, for rates of products in runs and plans.
#pragma once

#include "runtime/engine/engine_settings.hpp"

namespace sluice {

// On a CPU, products of train.matmul fp32 and fp8 are products in fp32.
[[nodiscard]] inline DType multiplied_in(const EngineOptions& options) {
  const bool wide = options.model.matmul != MatmulType::kNative && !options.model.on_gpu;
  return wide ? DType::kFloat32 : options.train.dtype;
}

}  // namespace sluice
