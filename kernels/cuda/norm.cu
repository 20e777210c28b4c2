#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/column_body.hpp"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/norm_body.hpp"

namespace sluice::cuda {
namespace {

template <class T, bool kCentered>
__global__ void __launch_bounds__(kThreads)
    norm_forward_kernel(LayerNormArgs a, void* y, bool aligned) {
  const std::int64_t row = warp_row();
  if (row < a.rows) norm_forward_body<T, kCentered>(a, y, row, Warp{}, aligned);
}

template <class T, bool kCentered>
__global__ void __launch_bounds__(kThreads)
    norm_input_kernel(LayerNormArgs a, NormInputGradient to, bool aligned) {
  const std::int64_t row = warp_row();
  if (row < a.rows) norm_input_body<T, kCentered>(a, to, row, Warp{}, aligned);
}

template <class T, bool kCentered>
__global__ void __launch_bounds__(kThreads)
    norm_parts_kernel(LayerNormArgs a, NormWeightGradient to, bool aligned) {
  norm_parts_body<T, kCentered>(a, to, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads) column_parts_kernel(ColumnTotal a, bool aligned) {
  column_parts_body<T>(a, blockIdx.x, row_worker(), aligned);
}

// blockIdx.y 1: the second total.
struct Totals {
  float* total[2];
  bool accumulate[2];
  const float* parts;
  std::int64_t blocks, columns;
};

__global__ void column_total_kernel(Totals a) {
  const std::int64_t column = first_index();
  const unsigned which = blockIdx.y;
  float* total = which == 0 ? a.total[0] : a.total[1];
  if (column >= a.columns || total == nullptr) return;
  column_total_body(total, a.parts + which * a.blocks * a.columns, a.blocks, a.columns, column,
                    which == 0 ? a.accumulate[0] : a.accumulate[1]);
}

void launch_totals(const Totals& totals, StreamRef stream) {
  constexpr unsigned kColumns = 64;  // a block; few, so that the columns spread over the GPU
  const auto blocks = static_cast<unsigned>((totals.columns + kColumns - 1) / kColumns);
  const unsigned count = totals.total[1] == nullptr ? 1 : 2;
  column_total_kernel<<<dim3(blocks, count), kColumns, 0, native(stream)>>>(totals);
  check_launch("column total");
}

std::int64_t row_blocks(std::int64_t rows) { return (rows + kSumRows - 1) / kSumRows; }

// f(null pointer of the element type, std::true_type for a LayerNorm).
template <class Fn>
void with_norm(const NormRows& rows, Fn f) {
  with_device_dtype(rows.at.dtype, [&](auto* tag) {
    if (rows.centered) {
      f(tag, std::true_type{});
    } else {
      f(tag, std::false_type{});
    }
  });
}

bool norm_aligned(const LayerNormArgs& a) {
  return packs_aligned(a.hidden * size_of(a.dtype), {a.x, a.weight, a.bias});
}

}  // namespace

void launch_norm_forward(const NormRows& rows, void* y, StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  const bool aligned = norm_aligned(a) && packs_aligned(0, {y});
  with_norm(rows, [&](auto* tag, auto centered) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_forward_kernel<T, decltype(centered)::value>
        <<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(a, y, aligned);
  });
  check_launch("norm forward");
}

void launch_norm_input_gradient(const NormRows& rows, const NormInputGradient& to,
                                StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  const bool aligned = norm_aligned(a) && packs_aligned(0, {to.dx, to.dy, to.residual});
  with_norm(rows, [&](auto* tag, auto centered) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_input_kernel<T, decltype(centered)::value>
        <<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(a, to, aligned);
  });
  check_launch("norm input gradient");
}

void launch_norm_weight_gradient(const NormRows& rows, const NormWeightGradient& to,
                                 StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  const bool aligned = norm_aligned(a) && packs_aligned(0, {to.dy});
  Grid grid = row_grid(row_blocks(a.rows), packs_of(a.hidden, a.dtype));
  with_norm(rows, [&](auto* tag, auto centered) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_parts_kernel<T, decltype(centered)::value>
        <<<grid.blocks, grid.threads, 0, native(stream)>>>(a, to, aligned);
  });
  check_launch("norm weight gradient");
  launch_totals({{to.d_weight, rows.centered ? to.d_bias : nullptr},
                 {to.accumulate_weight, to.accumulate_bias},
                 to.parts,
                 row_blocks(a.rows),
                 a.hidden},
                stream);
}

void launch_column_sum(const ColumnTotal& a, StreamRef stream) {
  if (a.columns <= 0 || a.rows <= 0) return;
  const bool aligned = packs_aligned(a.columns * size_of(a.dtype), {a.x});
  const Grid grid = row_grid(row_blocks(a.rows), packs_of(a.columns, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    column_parts_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("column sum");
  launch_totals({{a.total, nullptr}, {a.accumulate, false}, a.parts, row_blocks(a.rows), a.columns},
                stream);
}

}  // namespace sluice::cuda
