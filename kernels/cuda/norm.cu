#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/branch_norm_body.hpp"
#include "kernels/cuda/column_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

// Blocks of a multiprocessor, of a kernel that reads `rows` rows and holds `packs` packs of each in
// a lane: all that leave it registers for them. Where it holds none, ptxas else aims at more and
// spills.
constexpr int blocks_with(int rows, int packs) {
  const int held = rows * packs;
  return held == 0 ? (rows > 1 ? 4 : 5) : held <= 8 ? 4 : 2;
}

template <class T, bool kCentered, int kPacks>
__global__ void __launch_bounds__(kThreads, blocks_with(1, kPacks))
    norm_forward_kernel(NormRows rows, void* y, bool aligned) {
  const std::int64_t row = warp_row();
  if (row < rows.at.rows) norm_forward_body<T, kCentered, kPacks>(rows, y, row, Warp{}, aligned);
}

template <class T, bool kCentered, int kPacks>
__global__ void __launch_bounds__(kThreads, blocks_with(2, kPacks))
    branch_norm_kernel(BranchArgs branch, NormRows norm, void* y, bool aligned) {
  const std::int64_t row = warp_row();
  if (row < norm.at.rows) {
    branch_norm_body<T, kCentered, kPacks>(branch, norm, y, row, Warp{}, aligned);
  }
}

template <class T, bool kCentered, int kPacks>
__global__ void __launch_bounds__(kThreads, blocks_with(3, kPacks))
    norm_input_kernel(LayerNormArgs a, NormInputGradient to, bool aligned) {
  const std::int64_t row = warp_row();
  if (row < a.rows) norm_input_body<T, kCentered, kPacks>(a, to, row, Warp{}, aligned);
}

// A thread's loads of 16 packs are in flight, which takes more registers than ptxas gives unasked.
constexpr int kSumBlocks = 2;

template <class T, bool kCentered>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    norm_parts_kernel(LayerNormArgs a, NormParts to, bool aligned) {
  norm_parts_body<T, kCentered>(a, to, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    column_parts_kernel(ColumnParts a, bool aligned) {
  column_parts_body<T>(a, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    join_rows_kernel(JoinedRows a, bool aligned) {
  join_rows_body<T>(a, blockIdx.x, row_worker(), aligned);
}

constexpr int kTotalsOfLaunch = 32;
constexpr unsigned kColumns = 64;  // a thread block; few, so that the columns spread over the GPU

struct TotalRow {
  ColumnTotal sum;
  int first;  // of its thread blocks
};

struct Totals {
  TotalRow at[kTotalsOfLaunch];
  int count;
};

__global__ void column_total_kernel(const __grid_constant__ Totals totals) {
  const TotalRow& row = totals.at[row_of(totals.at, totals.count, blockIdx.x)];
  const std::int64_t column =
      static_cast<std::int64_t>(static_cast<int>(blockIdx.x) - row.first) * kColumns + threadIdx.x;
  if (column < row.sum.columns) column_total_body(row.sum, column);
}

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

// The same, and the packs of a lane that the kernel holds.
template <int kMost, class Fn>
void with_held_norm(const NormRows& rows, std::int64_t lane_packs, Fn f) {
  with_held_packs<kMost>(lane_packs, [&](auto packs) {
    with_norm(rows, [&](auto* tag, auto centered) { f(tag, centered, packs); });
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
  if (rows.row_maxima != nullptr) check_maxima(a.hidden, a.dtype, aligned);
  const std::int64_t packs = lane_packs(a.hidden, a.dtype, aligned);
  with_held_norm<kMostPacks>(rows, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_forward_kernel<T, decltype(centered)::value, decltype(held)::value>
        <<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(rows, y, aligned);
  });
  check_launch("norm forward");
}

void launch_branch_norm(const BranchArgs& branch, const NormRows& rows, void* y, StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  check_argument(a.x == branch.out && a.rows == branch.rows && a.hidden == branch.columns,
                 "the norm behind a branch is that of its result");
  const bool aligned =
      norm_aligned(a) && packs_aligned(0, {y, branch.x, branch.bias, branch.residual});
  if (rows.row_maxima != nullptr) check_maxima(a.hidden, a.dtype, aligned);
  const std::int64_t packs = branch_lane_packs(branch, aligned);
  with_held_norm<kMostPacksOfRows>(rows, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    branch_norm_kernel<T, decltype(centered)::value, decltype(held)::value>
        <<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(branch, rows, y, aligned);
  });
  check_launch("branch and norm");
}

void launch_norm_input_gradient(const NormRows& rows, const NormInputGradient& to,
                                StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  const bool aligned = norm_aligned(a) && packs_aligned(0, {to.dx, to.dy, to.residual});
  const std::int64_t packs = lane_packs(a.hidden, a.dtype, aligned);
  with_held_norm<kMostPacksOfRows>(rows, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_input_kernel<T, decltype(centered)::value, decltype(held)::value>
        <<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(a, to, aligned);
  });
  check_launch("norm input gradient");
}

void launch_norm_parts(const NormRows& rows, const NormParts& to, StreamRef stream) {
  const LayerNormArgs& a = rows.at;
  if (a.rows <= 0) return;
  const bool aligned = norm_aligned(a) && packs_aligned(0, {to.dy});
  const Grid grid = row_grid(sum_blocks(a.rows), packs_of(a.hidden, a.dtype));
  with_norm(rows, [&](auto* tag, auto centered) {
    using T = std::remove_pointer_t<decltype(tag)>;
    norm_parts_kernel<T, decltype(centered)::value>
        <<<grid.blocks, grid.threads, 0, native(stream)>>>(a, to, aligned);
  });
  check_launch("norm weight gradient");
}

void launch_column_parts(const ColumnParts& a, StreamRef stream) {
  if (a.columns <= 0 || a.rows <= 0) return;
  const bool aligned = packs_aligned(a.columns * size_of(a.dtype), {a.x});
  const Grid grid = row_grid(sum_blocks(a.rows), packs_of(a.columns, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    column_parts_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("column sum");
}

void launch_join_rows(const JoinedRows& a, StreamRef stream) {
  if (a.rows <= 0) return;
  bool aligned = packs_aligned(0, {a.to});
  std::int64_t packs = 0;
  for (int k = 0; k < JoinedRows::kMatrices; ++k) {
    aligned = aligned && packs_aligned(a.columns[k] * size_of(a.dtype), {a.from[k]});
    packs += packs_of(a.columns[k], a.dtype);
  }
  if (packs == 0) return;
  const Grid grid = row_grid(sum_blocks(a.rows), packs);
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    join_rows_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("rows side by side");
}

void launch_column_totals(const ColumnTotal* sums, int count, StreamRef stream) {
  for (int begin = 0; begin < count; begin += kTotalsOfLaunch) {
    Totals part{};
    part.count = count - begin < kTotalsOfLaunch ? count - begin : kTotalsOfLaunch;
    int blocks = 0;
    for (int i = 0; i < part.count; ++i) {
      part.at[i] = {sums[begin + i], blocks};
      blocks += static_cast<int>((sums[begin + i].columns + kColumns - 1) / kColumns);
    }
    if (blocks == 0) continue;
    column_total_kernel<<<static_cast<unsigned>(blocks), kColumns, 0, native(stream)>>>(part);
    check_launch("column total");
  }
}

}  // namespace sluice::cuda
