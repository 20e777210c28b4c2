#include "runtime/model/math/wide_product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/cpu/cast.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/unit.hpp"

// MKL's function, statically linked into libtorch; null if libtorch was built on another BLAS.
extern "C" __attribute__((weak)) void cblas_gemm_bf16bf16f32(int layout, int turn_a, int turn_b,
                                                             int m, int n, int k, float alpha,
                                                             const std::uint16_t* a, int lda,
                                                             const std::uint16_t* b, int ldb,
                                                             float beta, float* c, int ldc);

namespace sluice {
namespace {

using at::Tensor;

// A matrix as BLAS takes it.
struct Operand {
  explicit Operand(const Tensor& x) : Operand(x, x.stride(1) == 1) {}
  Operand(const Tensor& x, bool as_it_is)
      : turn(as_it_is ? 111 : 112),
        data(static_cast<const std::uint16_t*>(x.data_ptr())),
        row_stride(static_cast<int>(as_it_is ? std::max(x.stride(0), x.size(1))
                                             : std::max(x.stride(1), x.size(0)))) {
    check(as_it_is || x.stride(0) == 1, "a factor has contiguous rows or columns");
  }
  int turn;  // CBLAS_TRANSPOSE
  const std::uint16_t* data;
  int row_stride;
};

void multiply(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  constexpr int kRowMajor = 101;
  const Operand left(a);
  const Operand right(b);
  cblas_gemm_bf16bf16f32(kRowMajor, left.turn, right.turn, static_cast<int>(c.size(0)),
                         static_cast<int>(c.size(1)), static_cast<int>(a.size(1)), 1.0F, left.data,
                         left.row_stride, right.data, right.row_stride, accumulate ? 1.0F : 0.0F,
                         c.data_ptr<float>(), static_cast<int>(std::max(c.stride(0), c.size(1))));
}

// Avoids operators of mixed dtypes, which make an fp32 copy of the 16-bit operand.
void deliver(const Tensor& c, const Tensor& tile, bool accumulate) {
  if (c.is_meta()) return;
  const DType dtype = dtype_of(tile);
  const auto* from = static_cast<const std::byte*>(tile.data_ptr());
  const std::int64_t columns = c.size(1);
  for (std::int64_t row = 0; row < c.size(0); ++row) {
    add_to(c.data_ptr<float>() + row * c.stride(0), from + row * columns * size_of(dtype), dtype,
           columns, accumulate);
  }
}

void multiply_by_tiles(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  const std::int64_t M = c.size(0);
  const std::int64_t N = c.size(1);
  const Tensor scratch =
      empty_tensor({std::min(M, kWideTile) * std::min(N, kWideTile)}, a.scalar_type(), a.device());
  for (std::int64_t row = 0; row < M; row = next_piece(row, kWideTile, M, c.is_meta())) {
    const std::int64_t m = std::min(kWideTile, M - row);
    for (std::int64_t column = 0; column < N;
         column = next_piece(column, kWideTile, N, c.is_meta())) {
      const std::int64_t n = std::min(kWideTile, N - column);
      Tensor tile = scratch.narrow(0, 0, m * n).view({m, n});
      at::mm_out(tile, a.narrow(0, row, m), b.narrow(1, column, n));
      deliver(c.narrow(0, row, m).narrow(1, column, n), tile, accumulate);
    }
  }
}

}  // namespace

bool wide_product_rounds(c10::ScalarType dtype) {
  return dtype != c10::ScalarType::BFloat16 || cblas_gemm_bf16bf16f32 == nullptr;
}

void wide_product(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  check(c.stride(1) == 1, "a product's result has contiguous rows");
  if (takes_gpu_path(c)) {
    if (c.is_meta()) return;  // cuBLAS adds to c in fp32
    Tensor sum = c;
    at::addmm_out(sum, c, a, b, c10::ScalarType::Float, accumulate ? 1 : 0, 1);
  } else if (wide_product_rounds(a.scalar_type())) {
    multiply_by_tiles(c, a, b, accumulate);
  } else if (c.is_cpu()) {
    multiply(c, a, b, accumulate);
  }
}

}  // namespace sluice
