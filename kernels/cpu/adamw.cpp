#include "kernels/cpu/adamw.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

AdamWConstants adamw_constants(const AdamWArgs& args) {
  if (args.step < 1) {
    throw Error("AdamW: step " + std::to_string(args.step) +
                " has no bias correction; count updates from 1");
  }
  const double step = static_cast<double>(args.step);
  const double bias1 = 1.0 - std::pow(args.beta1, step);
  const double bias2 = 1.0 - std::pow(args.beta2, step);
  return {.grad_scale = static_cast<float>(args.grad_scale),
          .beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
          .inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2)),
          .eps = static_cast<float>(args.eps),
          .minus_step_size = static_cast<float>(-args.lr / bias1),
          .decay = static_cast<float>(1.0 - args.lr * args.weight_decay)};
}

void adamw(const AdamWArgs& args) {
  check(args.n >= 0, "adamw: n < 0");
  const AdamWConstants constants = adamw_constants(args);
  if (args.n == 0) return;
  check(args.master != nullptr && args.m != nullptr && args.v != nullptr && args.grad != nullptr,
        "adamw: a null buffer");
  check(args.moments_dtype != DType::kFloat16,
        "adamw: moments in fp16 would lose second moments below 6e-8; keep them in fp32 or bf16");
  check(args.rounding_element >= 0, "adamw: rounding_element < 0");
  const KernelTable& table = kernels();
  parallel_for(args.n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.adamw(args, constants, begin, end - begin);
  });
}

}  // namespace sluice
