#include "runtime/model/math/fp32_matmul.hpp"

#include <ATen/ops/addmm.h>

#include <algorithm>

#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/parallel.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

using at::Tensor;

// Longest side of a converted tile. An element is converted once for every 1024 that its row or
// column meets on the other side: 1 % of the product's time.
constexpr std::int64_t kTile = 1024;
constexpr std::int64_t kAlignment = 64;  // elements; tiles of fp32 matrices begin on a cache line

bool is_wide(const Tensor& x) { return x.scalar_type() == c10::ScalarType::Float; }

// Tiles of nearly one size, so that none is thin.
std::int64_t tile_extent(std::int64_t n) {
  const std::int64_t pieces = std::max<std::int64_t>(1, (n + kTile - 1) / kTile);
  const std::int64_t each = (n + pieces - 1) / pieces;
  return std::min(n, (each + kAlignment - 1) / kAlignment * kAlignment);
}

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

template <class Fn>
void for_tiles(std::int64_t n, std::int64_t extent, bool dry, Fn f) {
  for (std::int64_t first = 0; first < n; first = next_piece(first, extent, n, dry)) {
    f(Range{first, std::min(extent, n - first)});
  }
}

// Element-wise between matrices of one shape with contiguous rows, of which one is dense.
void convert_matrix(const Tensor& to, const Tensor& from) {
  if (to.is_meta()) return;
  check(to.is_cpu() && from.is_cpu(), "16-bit matrices are multiplied in fp32 on the host only");
  const DType to_dtype = dtype_of(to);
  const DType from_dtype = dtype_of(from);
  if (to.is_contiguous() && from.is_contiguous()) {
    convert(to.data_ptr(), to_dtype, from.data_ptr(), from_dtype, to.numel());
    return;
  }
  auto* const dst = static_cast<std::byte*>(to.data_ptr());
  const auto* const src = static_cast<const std::byte*>(from.data_ptr());
  const std::int64_t dst_row = to.stride(0) * size_of(to_dtype);
  const std::int64_t src_row = from.stride(0) * size_of(from_dtype);
  const std::int64_t columns = to.size(1);
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elements(4) / columns);
  parallel_for(to.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      convert(dst + row * dst_row, to_dtype, src + row * src_row, from_dtype, columns);
    }
  });
}

// A matrix seen in fp32, a tile at a time.
class Tiled {
 public:
  // Tiles have at most rows x columns elements.
  Tiled(const Tensor& matrix, std::int64_t rows, std::int64_t columns)
      : turned_(matrix.stride(1) != 1 && matrix.stride(0) == 1),
        matrix_(turned_ ? matrix.t() : matrix) {
    if (!is_wide(matrix)) {
      scratch_ = empty_tensor({rows * columns}, c10::ScalarType::Float, matrix.device());
    }
  }

  // A view of the matrix, or a place in scratch of whatever content.
  Tensor place(Range rows, Range columns) {
    if (!scratch_.defined()) return part(rows, columns);
    loaded_ = false;
    return in_scratch(rows, columns);
  }

  Tensor load(Range rows, Range columns) {
    if (!scratch_.defined()) return part(rows, columns);
    const Tensor wide = in_scratch(rows, columns);
    if (loaded_ && rows == rows_ && columns == columns_) return wide;
    convert_matrix(turned_ ? wide.t() : wide, stored_part(rows, columns));
    loaded_ = true;
    rows_ = rows;
    columns_ = columns;
    return wide;
  }

  // Writes the result of the last place(), or the change of the last load(), to the matrix.
  void store(Range rows, Range columns) const {
    if (!scratch_.defined()) return;
    const Tensor wide = in_scratch(rows, columns);
    convert_matrix(stored_part(rows, columns), turned_ ? wide.t() : wide);
  }

 private:
  [[nodiscard]] Tensor stored_part(Range rows, Range columns) const {
    if (turned_) std::swap(rows, columns);
    return matrix_.narrow(0, rows.first, rows.count).narrow(1, columns.first, columns.count);
  }
  [[nodiscard]] Tensor part(Range rows, Range columns) const {
    const Tensor stored = stored_part(rows, columns);
    return turned_ ? stored.t() : stored;
  }
  [[nodiscard]] Tensor in_scratch(Range rows, Range columns) const {
    const Tensor flat = scratch_.narrow(0, 0, rows.count * columns.count);
    return turned_ ? flat.view({columns.count, rows.count}).t()
                   : flat.view({rows.count, columns.count});
  }

  const bool turned_;
  const Tensor matrix_;  // with contiguous rows
  Tensor scratch_;       // undefined for fp32
  bool loaded_ = false;  // scratch holds this tile:
  Range rows_;
  Range columns_;
};

}  // namespace

void fp32_matmul(const Fp32Matmul& p) {
  const bool a = !is_wide(p.a);
  const bool b = !is_wide(p.b);
  const bool c = !is_wide(p.c);
  const bool dry = p.c.is_meta();
  const std::int64_t M = p.c.size(0);
  const std::int64_t N = p.c.size(1);
  const std::int64_t K = p.a.size(1);
  const std::int64_t m_extent = a || c ? tile_extent(M) : M;
  const std::int64_t n_extent = b || c ? tile_extent(N) : N;
  const std::int64_t k_extent = a || b ? tile_extent(K) : K;
  Tiled a_tiles(p.a, m_extent, k_extent);
  Tiled b_tiles(p.b, k_extent, n_extent);
  Tiled c_tiles(p.c, m_extent, n_extent);
  const Tensor bias = p.bias.defined() ? p.bias.to(c10::ScalarType::Float) : p.bias;
  for_tiles(M, m_extent, dry, [&](Range m) {
    for_tiles(N, n_extent, dry, [&](Range n) {
      Tensor sum = p.accumulate ? c_tiles.load(m, n) : c_tiles.place(m, n);
      for_tiles(K, k_extent, dry, [&](Range k) {
        const Tensor x = a_tiles.load(m, k);
        const Tensor y = b_tiles.load(k, n);
        if (k.first == 0 && bias.defined()) {
          at::addmm_out(sum, bias.narrow(0, n.first, n.count), x, y);
        } else {
          at::addmm_out(sum, sum, x, y, p.accumulate || k.first > 0 ? 1 : 0, 1);
        }
      });
      c_tiles.store(m, n);
    });
  });
}

}  // namespace sluice
