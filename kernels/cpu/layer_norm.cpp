#include "kernels/cpu/layer_norm.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/row_grain.hpp"

namespace sluice {
namespace {

void check_norm(const LayerNormArgs& a, bool others) {
  check(a.hidden >= 1 && a.rows >= 0, "layer_norm: hidden < 1 or rows < 0");
  check(a.rows == 0 || (a.x != nullptr && a.weight != nullptr && others),
        "layer_norm: a null buffer");
}

}  // namespace

void layer_norm_forward(const LayerNormArgs& args, void* y) {
  check_norm(args, y != nullptr && args.bias != nullptr);
  const KernelTable& table = kernels();
  parallel_for(
      args.rows, row_grain(args.dtype, args.hidden),
      [&](std::int64_t begin, std::int64_t end) { table.layer_norm_forward(args, y, begin, end); });
}

void layer_norm_input_gradient(const LayerNormArgs& args, void* dx, const void* dy,
                               const void* residual) {
  check_norm(args, dx != nullptr && dy != nullptr && args.mean != nullptr && args.rstd != nullptr);
  const KernelTable& table = kernels();
  parallel_for(args.rows, row_grain(args.dtype, args.hidden),
               [&](std::int64_t begin, std::int64_t end) {
                 table.layer_norm_input_gradient(args, dx, dy, residual, begin, end);
               });
}

void layer_norm_weight_gradient(const LayerNormArgs& args, float* d_weight, float* d_bias,
                                const void* dy, bool accumulate_weight, bool accumulate_bias) {
  check_norm(args, d_weight != nullptr && d_bias != nullptr && dy != nullptr &&
                       args.mean != nullptr && args.rstd != nullptr);
  if (!accumulate_weight) std::fill_n(d_weight, args.hidden, 0.0F);
  if (!accumulate_bias) std::fill_n(d_bias, args.hidden, 0.0F);
  const KernelTable& table = kernels();
  parallel_for(args.hidden, column_grain(args.hidden, args.rows),
               [&](std::int64_t begin, std::int64_t end) {
                 table.layer_norm_weight_gradient(args, d_weight, d_bias, dy, begin, end);
               });
}

void column_sum(float* total, const void* x, DType dtype, std::int64_t rows, std::int64_t columns,
                bool accumulate) {
  check(rows >= 0 && columns >= 0, "column_sum: a negative size");
  check(columns == 0 || (total != nullptr && (rows == 0 || x != nullptr)),
        "column_sum: a null buffer");
  if (!accumulate) std::fill_n(total, columns, 0.0F);
  const KernelTable& table = kernels();
  parallel_for(columns, column_grain(columns, rows), [&](std::int64_t begin, std::int64_t end) {
    table.column_sum({total, x, dtype, rows, columns}, begin, end);
  });
}

}  // namespace sluice
