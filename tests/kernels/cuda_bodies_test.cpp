// The CUDA kernels of blocks (cuda_runs.hpp), bit for bit against the CPU's kernels. Widths are
// whole packs of 16 bytes, and odd.
#include "tests/kernels/cuda_bodies.hpp"

#include <bit>
#include <cmath>
#include <deque>

#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/gelu.hpp"
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/philox.hpp"
#include "kernels/cpu/rope.hpp"

namespace sluice::testing {
namespace {

TEST(CudaBodies, GeluHasTheBitsOfTheCpu) {
  for_shapes([](const Shape& shape) {
    const std::int64_t n = kRows * shape.width;
    const Buffer x = random(shape.dtype, n, 1, 4.0F);
    const Buffer dy = random(shape.dtype, n, 2);
    const Buffer want(x.content());
    gelu_forward(want.data(), want.data(), shape.dtype, n);
    const Buffer want_dx(dy.content());
    gelu_backward(want_dx.data(), x.data(), want_dx.data(), shape.dtype, n);
    const Buffer got(x.content());  // in place
    const Buffer got_dx(dy.content());
    run_gelu({got.data(), got.data(), shape.dtype, n});
    run_gelu_gradient({.dx = got_dx.data(),
                       .x = x.data(),
                       .dy = got_dx.data(),
                       .dtype = shape.dtype,
                       .width = n});
    EXPECT_EQ(got.content(), want.content());
    EXPECT_EQ(got_dx.content(), want_dx.content());
  });
}

// dx in the place of x and y in that of dy, as blocks want them.
TEST(CudaBodies, GeluGradientWithItsOutputAndTheSumsOfItsRows) {
  for_shapes([](const Shape& shape) {
    const std::int64_t blocks = cuda::sum_blocks(kRows), n = kRows * shape.width;
    const Buffer x = random(shape.dtype, n, 1, 4.0F), dy = random(shape.dtype, n, 2);
    const Buffer want(dy.content().size()), want_dx(dy.content());
    run_gelu({want.data(), x.data(), shape.dtype, n});
    cuda::GeluGradient args{.dx = want_dx.data(),
                            .x = x.data(),
                            .dy = want_dx.data(),
                            .dtype = shape.dtype,
                            .width = shape.width,
                            .rows = kRows};
    run_gelu_gradient(args);
    const Buffer want_parts(floats(blocks * shape.width));
    run_column_parts({want_dx.data(), shape.dtype, kRows, shape.width, numbers(want_parts)});
    for (const bool sums : {false, true}) {
      for (const bool again : {false, true}) {
        const Buffer dx(x.content()), y(dy.content()), parts(floats(blocks * shape.width));
        args.dx = dx.data();
        args.x = dx.data();
        args.dy = y.data();
        args.y = again ? y.data() : nullptr;
        args.parts = sums ? numbers(parts) : nullptr;
        run_gelu_gradient(args);
        EXPECT_EQ(dx.content(), want_dx.content());
        EXPECT_EQ(y.content(), again ? want.content() : dy.content());
        if (!sums) continue;
        EXPECT_EQ(parts.content(), want_parts.content());
      }
    }
  });
}

TEST(CudaBodies, SwigluHasTheBitsOfTheCpu) {
  for_shapes([](const Shape& shape) {
    const std::int64_t n = kRows * shape.width;
    const Buffer gate_up = random(shape.dtype, 2 * n, 3, 4.0F);
    const Buffer dy = random(shape.dtype, n, 4);
    const Buffer want(dy.content().size());
    const Buffer want_gradient(gate_up.content());
    swiglu_forward(want.data(), {gate_up.data(), shape.dtype, kRows, shape.width});
    swiglu_backward({want_gradient.data(), shape.dtype, kRows, shape.width}, dy.data());
    const Buffer got(dy.content().size());
    const Buffer gradient(gate_up.content()), apart(gate_up.content().size());
    const Buffer again(dy.content());
    run_swiglu({got.data(), gate_up.data(), shape.dtype, kRows, shape.width});
    cuda::SwigluGradient args{.d_gate_up = apart.data(),
                              .gate_up = gate_up.data(),
                              .dy = dy.data(),
                              .dtype = shape.dtype,
                              .rows = kRows,
                              .width = shape.width};
    run_swiglu_gradient(args);
    args.d_gate_up = gradient.data();  // in place, and the output in that of dy
    args.gate_up = gradient.data();
    args.dy = again.data();
    args.y = again.data();
    run_swiglu_gradient(args);
    EXPECT_EQ(got.content(), want.content());
    EXPECT_EQ(again.content(), want.content());
    EXPECT_EQ(gradient.content(), want_gradient.content());
    EXPECT_EQ(apart.content(), want_gradient.content());
  });
}

// Every value of bf16, and fp32's neighbours of the bounds at which a pack takes another path.
std::vector<float> all_values() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high <= 0xffff; ++high) {
    values.push_back(std::bit_cast<float>(high << 16));
  }
  for (const float bound : {9.0F, 30.0F, 86.0F, 87.0F, 89.0F}) {
    for (const float at : {bound, -bound}) {
      values.insert(values.end(), {std::nextafter(at, 0.0F), at, std::nextafter(at, 2 * at)});
    }
  }
  return values;
}

// Each value `apart` times in turn with usual ones.
Buffer among_others(const std::vector<float>& values, DType dtype, std::size_t apart) {
  std::vector<float> all = normal_values(static_cast<std::int64_t>(values.size() * apart), 9);
  for (std::size_t i = 0; i < values.size(); ++i) all[i * apart + i % apart] = values[i];
  return Buffer(as_bytes(all, dtype));
}

void expect_equal_or_nan(const Buffer& got, const Buffer& want, DType dtype) {
  const std::vector<float> a = got.values(dtype), b = want.values(dtype);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool equal = std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]);
    ASSERT_TRUE(equal || (std::isnan(a[i]) && std::isnan(b[i])))
        << "element " << i << ": " << a[i] << " instead of " << b[i];
  }
}

TEST(CudaBodies, ActivationsOfEveryValueAreTheCpus) {
  const std::vector<float> values = all_values();
  for (const DType dtype : kDTypes) {
    for (const std::size_t apart : {1UL, 8UL}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", one in " + std::to_string(apart));
      const Buffer x = among_others(values, dtype, apart);
      const std::size_t bytes = x.content().size();
      const auto n = static_cast<std::int64_t>(bytes) / size_of(dtype);
      const Buffer dy = random(dtype, n, 2), want(bytes), got(bytes), want_dx(bytes), got_dx(bytes);
      gelu_forward(want.data(), x.data(), dtype, n);
      run_gelu({got.data(), x.data(), dtype, n});
      expect_equal_or_nan(got, want, dtype);
      gelu_backward(want_dx.data(), x.data(), dy.data(), dtype, n);
      run_gelu_gradient(
          {.dx = got_dx.data(), .x = x.data(), .dy = dy.data(), .dtype = dtype, .width = n});
      expect_equal_or_nan(got_dx, want_dx, dtype);
      swiglu_forward(want.data(), {x.data(), dtype, 1, n / 2});
      run_swiglu({got.data(), x.data(), dtype, 1, n / 2});
      expect_equal_or_nan(got, want, dtype);
    }
  }
}

// More columns than a grid has threads for packs, and a matrix that is missing.
TEST(CudaBodies, RowsSideBySideWithTheSumsOfTheColumns) {
  for_shapes([](const Shape& shape) {
    for (const std::int64_t last : {std::int64_t{0}, shape.width}) {
      const std::array<std::int64_t, 3> columns{3 * shape.width, shape.width, last};
      const std::int64_t all = columns[0] + columns[1] + columns[2];
      Bytes want(static_cast<std::size_t>(kRows * all * size_of(shape.dtype)));
      const Buffer to(want.size()), parts(floats(cuda::sum_blocks(kRows) * all));
      const Buffer want_parts(parts.content().size());
      std::deque<Buffer> from;
      cuda::JoinedRows args{
          .to = to.data(), .dtype = shape.dtype, .rows = kRows, .parts = numbers(parts)};
      std::size_t first = 0;
      const auto row_bytes = static_cast<std::size_t>(all * size_of(shape.dtype));
      for (std::size_t k = 0; k < columns.size(); ++k) {
        const Bytes each =
            as_bytes(normal_values(kRows * columns[k], static_cast<unsigned>(60 + k)), shape.dtype);
        args.from[k] = from.emplace_back(each).data();
        args.columns[k] = columns[k];
        const auto bytes = static_cast<std::size_t>(columns[k] * size_of(shape.dtype));
        for (std::size_t row = 0; row < std::size_t{kRows}; ++row) {
          std::copy_n(each.begin() + static_cast<std::ptrdiff_t>(row * bytes), bytes,
                      want.begin() + static_cast<std::ptrdiff_t>(row * row_bytes + first));
        }
        first += bytes;
      }
      run_join_rows(args);
      const Buffer whole(want);
      run_column_parts({whole.data(), shape.dtype, kRows, all, numbers(want_parts)});
      EXPECT_EQ(to.content(), want);
      EXPECT_EQ(parts.content(), want_parts.content());
    }
  });
}

TEST(CudaBodies, RopeHasTheBitsOfTheCpu) {
  constexpr std::int64_t kHeads = 3, kSeq = 11;
  for_shapes([](const Shape& shape) {
    const std::int64_t half = shape.width, stride = kHeads * 2 * half + 8;
    const Buffer cos = random(DType::kFloat32, kSeq * half, 5);
    const Buffer sin = random(DType::kFloat32, kSeq * half, 6);
    const Buffer x = random(shape.dtype, kRows * stride, 7);
    std::vector<std::int64_t> backwards;  // positions that no row % seq gives
    for (std::int64_t row = 0; row < kRows; ++row) backwards.push_back(kSeq - 1 - row % kSeq);
    const Buffer positions = copy_of(backwards);
    for (const bool back : {false, true}) {
      for (const bool listed : {false, true}) {
        const Buffer want(x.content());
        RopeArgs args{.x = want.data(),
                      .cos = numbers(cos),
                      .sin = numbers(sin),
                      .dtype = shape.dtype,
                      .rows = kRows,
                      .seq = kSeq,
                      .heads = kHeads,
                      .head_dim = 2 * half,
                      .stride = stride,
                      .back = back};
        for (std::int64_t row = 0; row < kRows && listed; ++row) {
          RopeArgs one = args;
          one.x = static_cast<std::byte*>(args.x) + row * stride * size_of(shape.dtype);
          one.cos += (kSeq - 1 - row % kSeq) * half;
          one.sin += (kSeq - 1 - row % kSeq) * half;
          one.rows = one.seq = 1;
          rope(one);
        }
        if (!listed) rope(args);
        const Buffer got(x.content());
        args.x = got.data();
        run_rope({args, listed ? data_of<std::int64_t>(positions) : nullptr});
        EXPECT_EQ(got.content(), want.content()) << "back " << back << ", listed " << listed;
      }
    }
  });
}

TEST(CudaBodies, SumsOverRowsHaveTheBitsOfTheCpu) {
  for_shapes([](const Shape& shape) {
    for (const std::int64_t rows : {kRows, std::int64_t{32}, std::int64_t{1}, std::int64_t{1100}}) {
      const Buffer x = random(shape.dtype, rows * shape.width, 8);
      const std::int64_t blocks = cuda::sum_blocks(rows);
      const Buffer parts(floats(blocks * shape.width));
      for (const bool accumulate : {false, true}) {
        const Buffer want = random(DType::kFloat32, shape.width, 9);
        const Buffer got(want.content());
        column_sum(numbers(want), x.data(), shape.dtype, rows, shape.width, accumulate);
        run_column_parts({x.data(), shape.dtype, rows, shape.width, numbers(parts)});
        const cuda::ColumnTotal total{numbers(got), numbers(parts), blocks, shape.width,
                                      accumulate};
        run_column_totals(&total, 1);
        EXPECT_EQ(got.content(), want.content()) << rows << " rows, accumulate " << accumulate;
      }
    }
  });
}

// dropout_add() of the CPU, a sample at a time. Samples begin inside rows and packs.
void host_branch(const cuda::BranchArgs& a, double p) {
  const auto at = [&](const void* buffer, std::int64_t i) {
    return static_cast<std::byte*>(const_cast<void*>(buffer)) + i * size_of(a.dtype);
  };
  const cuda::MaskPlace& m = a.mask;
  for (std::int64_t i = 0; i < a.rows * a.columns;) {
    const std::int64_t sample = (m.first + i) / m.per_sample;
    const std::int64_t within = (m.first + i) % m.per_sample;
    const std::int64_t n = std::min(a.rows * a.columns - i, m.per_sample - within);
    const std::array<std::uint64_t, 3> key{
        m.step, m.first_sample + static_cast<std::uint64_t>(sample), m.site};
    dropout_add({.out = at(a.out, i),
                 .x = at(a.x, i),
                 .residual = a.residual == nullptr ? nullptr : at(a.residual, i),
                 .dtype = a.dtype,
                 .n = n,
                 .p = p,
                 .seed = m.seed,
                 .stream = hash_stream(key),
                 .first_element = m.offset + within});
    i += n;
  }
}

TEST(CudaBodies, DropoutHasTheMasksOfTheCpu) {
  constexpr double kP = 0.3;
  for_shapes([](const Shape& shape) {
    const std::int64_t n = kRows * shape.width;
    const Buffer x = random(shape.dtype, n, 17), residual = random(shape.dtype, n, 18);
    struct Place {
      std::int64_t per_sample, first, offset;
    };
    for (const Place& p : {Place{13 * shape.width, 0, 0}, Place{7, 3, 1}, Place{n, 4, 8},
                           Place{2 * n, 5, (std::int64_t{1} << 40) + 2}}) {
      for (const bool residual_too : {false, true}) {
        const Buffer want(x.content());
        cuda::BranchArgs args{want.data(),
                              want.data(),
                              nullptr,
                              residual_too ? residual.data() : nullptr,
                              shape.dtype,
                              kRows,
                              shape.width,
                              {dropout_threshold(kP), static_cast<float>(1.0 / (1.0 - kP)), 21, 22,
                               23, 24, p.per_sample, p.first, p.offset}};
        host_branch(args, kP);
        const Buffer got(x.content());
        args.out = got.data();
        args.x = got.data();
        run_branch(args);
        EXPECT_EQ(got.content(), want.content()) << p.per_sample << ", residual " << residual_too;
        // A recorded kernel has the mask of the step in memory, not of the one it was recorded in.
        const Buffer now = copy_of<cuda::StepScalars>({{.step = args.mask.step}});
        const Buffer recorded(x.content());
        args.out = recorded.data();
        args.x = recorded.data();
        args.mask.step += 9;
        args.mask.scalars = data_of<cuda::StepScalars>(now);
        run_branch(args);
        EXPECT_EQ(recorded.content(), want.content());
      }
    }
  });
}

TEST(CudaBodies, BranchAddsBiasAndResidual) {
  for_shapes([](const Shape& shape) {
    const std::int64_t n = kRows * shape.width;
    const Buffer x = random(shape.dtype, n, 19), bias = random(shape.dtype, shape.width, 20);
    const Buffer residual = random(shape.dtype, n, 21),
                 got(residual.content());  // out is the residual
    const cuda::BranchArgs args{got.data(),  x.data(), bias.data(), got.data(),
                                shape.dtype, kRows,    shape.width, {}};
    run_branch(args);
    const std::vector<float> v = x.values(shape.dtype), b = bias.values(shape.dtype);
    const std::vector<float> r = residual.values(shape.dtype), out = got.values(shape.dtype);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float sum = v[i] + b[i % static_cast<std::size_t>(shape.width)];
      ASSERT_EQ(out[i], rounded(r[i] + sum, shape.dtype)) << i;
    }
  });
}

}  // namespace
}  // namespace sluice::testing
