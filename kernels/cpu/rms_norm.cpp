#include "kernels/cpu/rms_norm.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/row_grain.hpp"

namespace sluice {
namespace {

void check_norm(const RmsNormArgs& a, bool others) {
  check(a.hidden >= 1 && a.rows >= 0, "rms_norm: hidden < 1 or rows < 0");
  check(a.rows == 0 || (a.x != nullptr && a.weight != nullptr && others),
        "rms_norm: a null buffer");
}

}  // namespace

void rms_norm_forward(const RmsNormArgs& args, void* y) {
  check_norm(args, y != nullptr);
  const KernelTable& table = kernels();
  parallel_for(
      args.rows, row_grain(args.dtype, args.hidden),
      [&](std::int64_t begin, std::int64_t end) { table.rms_norm_forward(args, y, begin, end); });
}

void rms_norm_input_gradient(const RmsNormArgs& args, void* dx, const void* dy,
                             const void* residual) {
  check_norm(args, dx != nullptr && dy != nullptr && args.rstd != nullptr);
  const KernelTable& table = kernels();
  parallel_for(args.rows, row_grain(args.dtype, args.hidden),
               [&](std::int64_t begin, std::int64_t end) {
                 table.rms_norm_input_gradient(args, dx, dy, residual, begin, end);
               });
}

void rms_norm_weight_gradient(const RmsNormArgs& args, float* d_weight, const void* dy,
                              bool accumulate) {
  check_norm(args, d_weight != nullptr && dy != nullptr && args.rstd != nullptr);
  if (!accumulate) std::fill_n(d_weight, args.hidden, 0.0F);
  const KernelTable& table = kernels();
  parallel_for(args.hidden, column_grain(args.hidden, args.rows),
               [&](std::int64_t begin, std::int64_t end) {
                 table.rms_norm_weight_gradient(args, d_weight, dy, begin, end);
               });
}

}  // namespace sluice
