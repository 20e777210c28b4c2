#include "tests/gpu/null/products.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <library_types.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/queue.hpp"

namespace null_gpu {
namespace {

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

double element(const void* at, int type) {
  switch (type) {
    case CUDA_R_64F:
      return load<double>(at);
    case CUDA_R_32F:
      return load<float>(at);
    case CUDA_R_16F:
      return __half2float(load<__half>(at));
    case CUDA_R_16BF:
      return __bfloat162float(load<__nv_bfloat16>(at));
    default:
      const auto kind = type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2;
      return __half2float(__half(__nv_cvt_fp8_to_halfraw(load<__nv_fp8_storage_t>(at), kind)));
  }
}

void put(void* at, int type, double value) {
  if (type == CUDA_R_64F) return store(at, value);
  const auto narrow = static_cast<float>(value);
  if (type == CUDA_R_32F) return store(at, narrow);
  if (type == CUDA_R_16F) return store(at, __float2half_rn(narrow));
  store(at, __float2bfloat16_rn(narrow));
}

// --- rules ---

std::int64_t height(const Matrix& x) { return x.turned ? x.columns : x.rows; }
std::int64_t width(const Matrix& x) { return x.turned ? x.rows : x.columns; }

bool is_on_device(const Matrix& x, std::int64_t batch) {
  if (x.rows == 0 || x.columns == 0 || batch == 0) return true;
  const std::int64_t elems = (batch - 1) * x.batch_stride + (x.columns - 1) * x.stride + x.rows;
  return is_device_range(x.data, static_cast<std::size_t>(elems * bytes_of_type(x.type)));
}

bool is_read(const Factor& factor) { return factor.on_device != nullptr || factor.value != 0; }

// 16-bit operands give their own type or fp32, 8-bit ones fp32 or bf16.
bool types_fit(const MatrixProduct& p) {
  const int in = p.a.type, out = p.d.type;
  if (p.c.type != out) return false;
  if (is_fp8(in)) return is_fp8(p.b.type) && (out == CUDA_R_32F || out == CUDA_R_16BF);
  if (bytes_of_type(in) == 0 || p.b.type != in) return false;
  return out == in || (out == CUDA_R_32F && bytes_of_type(in) == 2);
}

bool is_whole(const Matrix& x) {
  return x.rows >= 0 && x.columns >= 0 && x.batch_stride >= 0 &&
         x.stride >= std::max<std::int64_t>(1, x.rows);
}

// In words of a fault; null where the product obeys all rules.
const char* broken_rule(const MatrixProduct& p) {
  if (!types_fit(p)) return "has types that do not go together";
  if (height(p.a) != p.d.rows || width(p.b) != p.d.columns || width(p.a) != height(p.b) ||
      p.c.rows != p.d.rows || p.c.columns != p.d.columns || p.batch < 0) {
    return "has matrices of other sizes";
  }
  for (const Matrix* x : {&p.a, &p.b, &p.c, &p.d}) {
    if (!is_whole(*x)) return "has a leading dimension below the matrix's rows";
    if (reinterpret_cast<std::uintptr_t>(x->data) % static_cast<unsigned>(bytes_of_type(x->type)) !=
        0) {
      return "takes a matrix at an address that its elements cannot have";
    }
  }
  if (!is_on_device(p.a, p.batch) || !is_on_device(p.b, p.batch) || !is_on_device(p.d, p.batch) ||
      (is_read(p.beta) && !is_on_device(p.c, p.batch))) {
    return "takes a matrix that is not on the device, or that leaves its allocation";
  }
  for (const void* number : {p.alpha.on_device, p.beta.on_device, p.scale_a, p.scale_b}) {
    if (number != nullptr && !is_device_range(number, sizeof(float))) {
      return "takes a factor that is not on the device";
    }
  }
  const auto bias_bytes = static_cast<std::size_t>(p.d.rows * bytes_of_type(p.bias_type));
  if (p.bias != nullptr && !is_device_range(p.bias, bias_bytes)) {
    return "takes a bias that is not on the device";
  }
  return nullptr;
}

// --- numbers ---

// Rows of a tile and its columns: what registers hold.
constexpr std::int64_t kRows = 16, kColumns = 4, kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// A tile's sums over k, which is in order: an element's bits do not depend on the tile.
// a: [k, kRows], b: [k, kColumns], to: [kColumns, kRows].
#if defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
void add_tile(std::int64_t k, const float* a, const float* b, float* to) {
  Lanes sums[kColumns][kRows / kLanes] = {};
  for (std::int64_t i = 0; i < k; ++i, a += kRows, b += kColumns) {
    for (int part = 0; part < kRows / kLanes; ++part) {
      Lanes rows;
      std::memcpy(&rows, a + part * kLanes, sizeof rows);
      for (int column = 0; column < kColumns; ++column) sums[column][part] += rows * b[column];
    }
  }
  std::memcpy(to, sums, sizeof sums);
}

const char* address(const Matrix& x, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return static_cast<const char*>(x.data) +
         (batch * x.batch_stride + column * x.stride + row) * bytes_of_type(x.type);
}

// The lines of a factor (rows of A, columns of B) in groups of `group`, as [lines / group, k,
// group]. Lines beyond the last are 0.
std::vector<float> packed(const Matrix& x, std::int64_t batch, bool lines_are_rows,
                          std::int64_t group) {
  const bool by_row = lines_are_rows != x.turned;  // a line of the product is a row of memory
  const std::int64_t lines = by_row ? x.rows : x.columns, k = by_row ? x.columns : x.rows;
  std::vector<float> all(static_cast<std::size_t>(sluice::round_up(lines, group) * k));
  for (std::int64_t column = 0; column < x.columns; ++column) {
    const char* from = address(x, batch, 0, column);
    for (std::int64_t row = 0; row < x.rows; ++row, from += bytes_of_type(x.type)) {
      const std::int64_t line = by_row ? row : column, i = by_row ? column : row;
      const std::int64_t at = (line / group * k + i) * group + line % group;
      all[static_cast<std::size_t>(at)] = static_cast<float>(element(from, x.type));
    }
  }
  return all;
}

double value_of(const Factor& factor, int type) {
  return factor.on_device == nullptr ? factor.value : element(factor.on_device, type);
}

// What a sum becomes in D.
struct Ending {
  explicit Ending(const MatrixProduct& product) : p(product) {
    const int type = p.d.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F;
    alpha = value_of(p.alpha, type);
    beta = value_of(p.beta, type);
    for (const void* scale : {p.scale_a, p.scale_b}) {
      if (scale != nullptr) alpha *= element(scale, CUDA_R_32F);
    }
  }
  void operator()(std::int64_t batch, std::int64_t row, std::int64_t column, double sum) const {
    double value = alpha * sum;
    if (beta != 0) value += beta * element(address(p.c, batch, row, column), p.c.type);
    if (p.bias != nullptr) {
      const char* const bias = static_cast<const char*>(p.bias);
      value += element(bias + row * bytes_of_type(p.bias_type), p.bias_type);
    }
    put(const_cast<char*>(address(p.d, batch, row, column)), p.d.type, value);
  }
  const MatrixProduct& p;
  double alpha = 0, beta = 0;
};

void multiply_fp32(const MatrixProduct& p, const Ending& end, std::int64_t batch) {
  const std::int64_t m = p.d.rows, n = p.d.columns, k = width(p.a);
  const std::vector<float> a = packed(p.a, batch, true, kRows);
  const std::vector<float> b = packed(p.b, batch, false, kColumns);
  float tile[kColumns][kRows];
  for (std::int64_t column = 0; column < n; column += kColumns) {
    for (std::int64_t row = 0; row < m; row += kRows) {
      add_tile(k, a.data() + row * k, b.data() + column * k, &tile[0][0]);
      for (std::int64_t j = 0; j < std::min(kColumns, n - column); ++j) {
        for (std::int64_t i = 0; i < std::min(kRows, m - row); ++i) {
          end(batch, row + i, column + j, tile[j][i]);
        }
      }
    }
  }
}

void multiply_fp64(const MatrixProduct& p, const Ending& end, std::int64_t batch) {
  const auto at = [&](const Matrix& x, std::int64_t row, std::int64_t column) {
    if (x.turned) std::swap(row, column);
    return element(address(x, batch, row, column), x.type);
  };
  for (std::int64_t column = 0; column < p.d.columns; ++column) {
    for (std::int64_t row = 0; row < p.d.rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < width(p.a); ++i) sum += at(p.a, row, i) * at(p.b, i, column);
      end(batch, row, column, sum);
    }
  }
}

void multiply(const MatrixProduct& p) {
  const Ending end(p);
  const bool fp64 = p.d.type == CUDA_R_64F;
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    fp64 ? multiply_fp64(p, end, batch) : multiply_fp32(p, end, batch);
  }
}

}  // namespace

Factor factor_of(const void* pointer, bool on_device, bool fp64) {
  if (pointer == nullptr) return {};
  if (on_device) return {.on_device = pointer};
  return {.value = element(pointer, fp64 ? CUDA_R_64F : CUDA_R_32F)};
}

Product counted(const MatrixProduct& p) {
  return {p.d.rows, p.d.columns, width(p.a), p.a.stride, p.b.stride, p.d.stride,
          p.batch,  p.a.type,    p.d.type,   p.a.data,   p.b.data,   p.d.data};
}

bool enqueue_product(const MatrixProduct& p, const Product& counted, const void* stream) {
  if (const char* const rule = broken_rule(p)) {
    fault("a product of " + std::to_string(p.d.rows) + " x " + std::to_string(p.d.columns) + " x " +
          std::to_string(width(p.a)) + " " + rule);
    return false;
  }
  count_product(counted, stream);
  if (computes()) {
    enqueue(stream, [p] {
      multiply(p);
      return true;
    });
  }
  return true;
}

}  // namespace null_gpu
