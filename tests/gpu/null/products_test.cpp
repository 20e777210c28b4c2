// Products of the null GPU that computes, against a plain loop; each rule has a bad sample.
#include "tests/gpu/null/products.hpp"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/gpu/null/computing_fixture.hpp"

namespace null_gpu {
namespace {

std::int64_t bytes_of(int type) {
  if (type == CUDA_R_64F) return 8;
  if (type == CUDA_R_32F) return 4;
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2 ? 1 : 2;
}

template <typename T>
void put(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void encode(char* to, int type, double value) {
  const auto narrow = static_cast<float>(value);
  if (type == CUDA_R_64F) return put(to, value);
  if (type == CUDA_R_32F) return put(to, narrow);
  if (type == CUDA_R_16F) return put(to, __float2half(narrow));
  if (type == CUDA_R_16BF) return put(to, __float2bfloat16(narrow));
  put(to, __nv_cvt_float_to_fp8(narrow, __NV_SATFINITE,
                                type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2));
}
double decode(const char* from, int type) {
  if (type == CUDA_R_64F) return get<double>(from);
  if (type == CUDA_R_32F) return get<float>(from);
  if (type == CUDA_R_16F) return __half2float(get<__half>(from));
  return __bfloat162float(get<__nv_bfloat16>(from));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Small whole numbers, which each type holds and whose sums are exact in fp32.
double number(std::int64_t i) { return static_cast<double>((i * 7919 + 13) % 5 - 2); }

// A batch of matrices on the device, with gaps of NaN between columns and between matrices.
struct Sample {
  Sample(int data_type, bool is_turned, std::int64_t height, std::int64_t width,
         std::int64_t batches, const std::function<double(std::int64_t)>& value)
      : type(data_type),
        turned(is_turned),
        rows(is_turned ? width : height),
        columns(is_turned ? height : width),
        stride(rows + 3),
        batch_stride(stride * columns + 5),
        memory(static_cast<std::size_t>(batches * batch_stride * 8)) {
    const bool holds_nan = bytes_of(type) > 1;
    for (std::int64_t i = 0; i < batches * batch_stride; ++i) {
      encode(at(i), type, holds_nan ? kNan : 1);
    }
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t i = b * batch_stride + column * stride + row;
          encode(at(i), type, value(i));
        }
      }
    }
  }
  [[nodiscard]] char* at(std::int64_t i) const { return memory.get() + i * bytes_of(type); }
  // The place of an element of the matrix as it takes part.
  [[nodiscard]] std::int64_t place(std::int64_t batch, std::int64_t row,
                                   std::int64_t column) const {
    return batch * batch_stride + (turned ? row : column) * stride + (turned ? column : row);
  }
  [[nodiscard]] double operand(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return number(place(batch, row, column));
  }
  [[nodiscard]] cublasOperation_t operation() const { return turned ? CUBLAS_OP_T : CUBLAS_OP_N; }
  [[nodiscard]] int ld() const { return static_cast<int>(stride); }

  int type;
  bool turned;
  std::int64_t rows, columns, stride, batch_stride;
  DeviceMemory memory;
};

struct Sizes {
  int m, n, k, batch;
};

double relative_error(int type) {
  if (type == CUDA_R_16BF) return 1.0 / 256;
  return type == CUDA_R_16F ? 1.0 / 2048 : 0;
}

// D against alpha A B + beta C, and the gaps of D.
void expect_product(const Sample& a, const Sample& b, const Sample& d, const Sizes& s, double alpha,
                    double beta) {
  for (int batch = 0; batch < s.batch; ++batch) {
    for (int column = 0; column < s.n; ++column) {
      for (int row = 0; row < s.m; ++row) {
        double want = 0;
        for (int i = 0; i < s.k; ++i) {
          want += a.operand(batch, row, i) * b.operand(batch, i, column);
        }
        want *= alpha;
        const std::int64_t at = d.place(batch, row, column);
        if (beta != 0) want += beta * number(at);
        ASSERT_NEAR(decode(d.at(at), d.type), want, std::abs(want) * relative_error(d.type))
            << s.m << " x " << s.n << " x " << s.k << " at " << row << ", " << column;
      }
      ASSERT_TRUE(std::isnan(decode(d.at(d.place(batch, s.m, column)), d.type)));
    }
  }
}

class Products : public ComputingGpu {
 public:
  ~Products() override { EXPECT_EQ(cublasDestroy(handle_), CUBLAS_STATUS_SUCCESS); }

 protected:
  Products() { EXPECT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  cublasHandle_t handle_ = nullptr;
};

constexpr std::array kTypes{std::pair{CUDA_R_16BF, CUDA_R_16BF}, std::pair{CUDA_R_16BF, CUDA_R_32F},
                            std::pair{CUDA_R_16F, CUDA_R_16F},   std::pair{CUDA_R_16F, CUDA_R_32F},
                            std::pair{CUDA_R_32F, CUDA_R_32F},   std::pair{CUDA_R_64F, CUDA_R_64F}};
constexpr std::array kSizes{Sizes{1, 1, 1, 1}, Sizes{5, 3, 7, 1}, Sizes{17, 5, 40, 2},
                            Sizes{16, 4, 8, 3}, Sizes{33, 70, 1, 1}};

TEST_F(Products, HaveThePlainLoopsNumbers) {
  for (const auto& [in, out] : kTypes) {
    for (const Sizes& s : kSizes) {
      for (int turns = 0; turns < 4; ++turns) {
        for (const double beta : {0.0, -0.5}) {
          const Sample a(in, turns % 2 == 1, s.m, s.k, s.batch, number);
          const Sample b(in, turns / 2 == 1, s.k, s.n, s.batch, number);
          const Sample d(out, false, s.m, s.n, s.batch,
                         [&](std::int64_t i) { return beta == 0 ? kNan : number(i); });
          const double alpha = 2;
          const auto alpha_32 = static_cast<float>(alpha), beta_32 = static_cast<float>(beta);
          const bool wide = in == CUDA_R_64F;
          ASSERT_EQ(cublasGemmStridedBatchedEx(
                        handle_, a.operation(), b.operation(), s.m, s.n, s.k,
                        wide ? static_cast<const void*>(&alpha) : &alpha_32, a.at(0), in, a.ld(),
                        a.batch_stride, b.at(0), in, b.ld(), b.batch_stride,
                        wide ? static_cast<const void*>(&beta) : &beta_32, d.at(0), out, d.ld(),
                        d.batch_stride, s.batch, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT),
                    CUBLAS_STATUS_SUCCESS);
          expect_product(a, b, d, s, alpha, beta);
        }
      }
    }
  }
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_F(Products, TakeFactorsFromTheDeviceWhenTheyRun) {
  const Sizes s{5, 3, 7, 1};
  const Sample a(CUDA_R_32F, false, s.m, s.k, 1, number), b(CUDA_R_32F, true, s.k, s.n, 1, number);
  const Sample d(CUDA_R_32F, false, s.m, s.n, 1, number);
  const DeviceMemory memory(64);
  auto* const factors = reinterpret_cast<float*>(memory.get());
  factors[0] = 3;
  factors[1] = 2;
  cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE);
  const auto floats = [](const Sample& x) { return reinterpret_cast<float*>(x.at(0)); };
  EXPECT_EQ(cublasSgemm(handle_, a.operation(), b.operation(), s.m, s.n, s.k, factors, floats(a),
                        a.ld(), floats(b), b.ld(), factors + 1, floats(d), d.ld()),
            CUBLAS_STATUS_SUCCESS);
  expect_product(a, b, d, s, 3, 2);
}

TEST_F(Products, OfAMatrixAndAVectorTakeSteps) {
  constexpr int kRows = 6, kColumns = 4, kStepX = 2, kStepY = 3;
  for (const bool turned : {false, true}) {
    const int in = turned ? kRows : kColumns, out = turned ? kColumns : kRows;
    const Sample a(CUDA_R_32F, false, kRows, kColumns, 1, number);
    const Sample x(CUDA_R_32F, false, kStepX * in, 1, 1, number);
    const Sample y(CUDA_R_32F, false, kStepY * out, 1, 1, number);
    const float alpha = 2, beta = 1;
    const auto floats = [](const Sample& s) { return reinterpret_cast<float*>(s.at(0)); };
    ASSERT_EQ(cublasSgemv(handle_, turned ? CUBLAS_OP_T : CUBLAS_OP_N, kRows, kColumns, &alpha,
                          floats(a), a.ld(), floats(x), kStepX, &beta, floats(y), kStepY),
              CUBLAS_STATUS_SUCCESS);
    for (std::int64_t i = 0; i < kStepY * out; ++i) {
      double want = number(i);
      for (int j = 0; i % kStepY == 0 && j < in; ++j) {
        const std::int64_t line = i / kStepY;
        want +=
            alpha * number(turned ? a.place(0, j, line) : a.place(0, line, j)) * number(j * kStepX);
      }
      EXPECT_EQ(floats(y)[i], want) << i;
    }
  }
}

// d [n, m] = scales b [n, k] a [m, k]^T + bias + beta d.
TEST_F(Products, Of8BitsTakeScalesAndABias) {
  constexpr std::int64_t kM = 32, kN = 7, kK = 48;
  const DeviceMemory a(kM * kK), b(kN * kK), rest(4096);
  for (std::int64_t i = 0; i < kM * kK; ++i) encode(a.get() + i, CUDA_R_8F_E4M3, number(i));
  for (std::int64_t i = 0; i < kN * kK; ++i) encode(b.get() + i, CUDA_R_8F_E5M2, number(i + 1));
  put(rest.get(), 4.0F);
  put(rest.get() + 4, 0.5F);
  char* const bias = rest.get() + 16;
  for (std::int64_t i = 0; i < kM; ++i) encode(bias + 2 * i, CUDA_R_16BF, number(i + 2));
  for (const auto& [type, beta] : {std::pair{CUDA_R_16BF, 0.0F}, std::pair{CUDA_R_32F, 1.0F}}) {
    const DeviceMemory d(kM * kN * 4);
    for (std::int64_t i = 0; i < kM * kN; ++i) {
      encode(d.get() + i * bytes_of(type), type, beta == 0 ? kNan : number(i));
    }
    MatrixProduct product{
        .a = {a.get(), CUDA_R_8F_E4M3, kK, kM, kK, true},
        .b = {b.get(), CUDA_R_8F_E5M2, kK, kN, kK},
        .c = {d.get(), type, kM, kN, kM},
        .d = {d.get(), type, kM, kN, kM},
        .beta = {.value = beta},
        .scale_a = rest.get(),
        .scale_b = rest.get() + 4,
        .bias = bias,
        .bias_type = CUDA_R_16BF,
    };
    ASSERT_TRUE(enqueue_product(product, counted(product), nullptr));
    for (std::int64_t i = 0; i < kM * kN; ++i) {
      double want = number(i % kM + 2) + (beta == 0 ? 0 : number(i));
      for (std::int64_t k = 0; k < kK; ++k) {
        want += 2 * number(i % kM * kK + k) * number(i / kM * kK + k + 1);
      }
      EXPECT_NEAR(decode(d.get() + i * bytes_of(type), type), want,
                  std::abs(want) * relative_error(type));
    }
  }
}

TEST_F(Products, HaveRules) {
  constexpr std::size_t kBlock = 2 << 20;  // the granularity of cudaMalloc
  const DeviceMemory memory(kBlock);
  const MatrixProduct right{.a = {memory.get(), CUDA_R_32F, 4, 6, 4},
                            .b = {memory.get() + 4096, CUDA_R_32F, 6, 5, 6},
                            .c = {memory.get() + 8192, CUDA_R_32F, 4, 5, 4},
                            .d = {memory.get() + 8192, CUDA_R_32F, 4, 5, 4}};
  static const float on_host = 1;
  // The allocation's last bytes: one row more than fits.
  const char* const end = memory.get() + kBlock - 4 * 5 * sizeof(float);
  const std::vector<std::pair<std::string, std::function<void(MatrixProduct&)>>> bad{
      {"types", [](MatrixProduct& p) { p.b.type = CUDA_R_16F; }},
      {"types", [](MatrixProduct& p) { p.c.type = p.d.type = CUDA_R_16BF; }},
      {"types", [](MatrixProduct& p) { p.a.type = p.b.type = CUDA_R_32I; }},
      {"other sizes", [](MatrixProduct& p) { p.a.turned = true; }},
      {"other sizes", [](MatrixProduct& p) { p.c.columns = 4; }},
      {"leading dimension", [](MatrixProduct& p) { p.a.stride = 3; }},
      {"leading dimension", [](MatrixProduct& p) { p.c.stride = p.d.stride = 3; }},
      {"an address", [](MatrixProduct& p) { p.b.data = static_cast<const char*>(p.b.data) + 2; }},
      {"leaves its allocation", [&](MatrixProduct& p) { p.a.data = end; }},
      {"leaves its allocation",
       [&](MatrixProduct& p) {
         p.d.data = end;
         p.d.stride = 5;
       }},
      {"leaves its allocation",
       [](MatrixProduct& p) {
         p.batch = 3;
         p.b.batch_stride = kBlock / 8;
       }},
      {"leaves its allocation",
       [](MatrixProduct& p) {
         p.beta.value = 1;
         p.c.data = nullptr;
       }},
      {"a factor", [](MatrixProduct& p) { p.alpha.on_device = &on_host; }},
      {"a bias",
       [](MatrixProduct& p) {
         p.bias = &on_host;
         p.bias_type = CUDA_R_32F;
       }},
  };
  EXPECT_TRUE(enqueue_product(right, counted(right), nullptr));
  std::int64_t faults = 0;
  for (const auto& [words, spoil] : bad) {
    MatrixProduct product = right;
    spoil(product);
    EXPECT_FALSE(enqueue_product(product, counted(product), nullptr)) << words;
    EXPECT_EQ(grown("/fault_count"), ++faults) << words;
    EXPECT_THAT(last_fault(), HasSubstr(words));
  }
  EXPECT_EQ(grown("/work/products"), 1);
}

}  // namespace
}  // namespace null_gpu
