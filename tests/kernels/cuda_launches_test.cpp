// What the launchers of the CUDA kernels do beside the kernels: tables that take more than one
// launch, grids that are smaller than the work, several tensors in one launch, and no work at all.
#include <cuda_runtime_api.h>

#include <deque>

#include "kernels/cpu/fp8_core.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cuda/step_clip.hpp"
#include "kernels/cuda/sum_squares.hpp"
#include "parallel/comm/ordered_add.hpp"
#include "parallel/comm/ordered_add_cuda.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr cuda::StreamRef kStream{};
constexpr std::int64_t kLargestGrid = 1056;                // thread blocks of a loop over a grid
constexpr std::int64_t kLong = kLargestGrid * 1024 + 777;  // elements that take a block twice

void finish() { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }

// Masters or remainders, moments, gradients and weights of an update.
struct Updated {
  explicit Updated(std::int64_t n, DType dtype, bool with_remainders = false)
      : elems(n),
        type(dtype),
        splits(with_remainders),
        master(random(DType::kFloat32, n, 1)),
        first(random(DType::kFloat32, n, 2, 0.1F)),
        second(as_bytes(std::vector<float>(static_cast<std::size_t>(n), 0.25F), DType::kFloat32)),
        grad(random(dtype, n, 3)),
        weights(grad) {}
  [[nodiscard]] UpdateSpan span(std::int64_t begin, std::int64_t end) const {
    const std::int64_t bytes = begin * size_of(type);
    std::byte* const out = data_of<std::byte>(weights) + bytes;
    return {.master = splits ? nullptr : numbers(master) + begin,
            .remainders = splits ? data_of<std::uint16_t>(master) + begin : nullptr,
            .weights = splits ? out : nullptr,
            .moments = {numbers(first) + begin, numbers(second) + begin},
            .grad = data_of<std::byte>(grad) + bytes,
            .grad_dtype = type,
            .weights_out = out,
            .weights_dtype = type,
            .n = end - begin,
            .lr = 3e-3,
            .weight_decay = 0.1,
            .step = 3,
            .grad_scale = 0.37};
  }
  [[nodiscard]] std::vector<Bytes> contents() const {
    return {master.content(), first.content(), second.content(), weights.content()};
  }
  std::int64_t elems;
  DType type;
  bool splits;
  Buffer master, first, second, grad, weights;
};

TEST(CudaLaunches, AnUpdateLargerThanItsGrid) {
  const Updated want(kLong, DType::kBFloat16), got(kLong, DType::kBFloat16);
  adamw(want.span(0, kLong));
  const UpdateSpan all = got.span(0, kLong);
  cuda::launch_adamw(&all, 1, nullptr, kStream);
  finish();
  EXPECT_TRUE(got.contents() == want.contents());
}

// Neighbours differ in types, in numbers, in whether they write weights and in the form of master
// weights.
TEST(CudaLaunches, SpansOfManyKindsAreUpdatedByTheirOwnNumbers) {
  const auto updated = [](auto update) {
    std::deque<Updated> tensors;
    std::vector<UpdateSpan> spans;
    for (std::size_t i = 0; i < 150; ++i) {
      const DType dtype = kDTypes[i / 40 % kDTypes.size()];
      const bool splits = dtype == DType::kBFloat16 && i % 3 == 1;
      const Updated& of =
          tensors.emplace_back(static_cast<std::int64_t>(1 + 37 * i % 1500), dtype, splits);
      UpdateSpan& span = spans.emplace_back(of.span(0, of.elems));
      span.lr = 1e-3 * static_cast<double>(1 + i / 7 % 5);
      span.weight_decay = i % 2 == 0 ? 0 : 0.1;
      if (i % 3 == 0) span.weights_out = nullptr;
      if (i % 11 == 0) span.n = 0;
    }
    update(spans);
    std::vector<std::vector<Bytes>> contents;
    for (const Updated& each : tensors) contents.push_back(each.contents());
    return contents;
  };
  const auto want = updated([](const std::vector<UpdateSpan>& spans) {
    for (const UpdateSpan& span : spans) {
      if (span.n > 0) adamw(span);
    }
  });
  const auto got = updated([](const std::vector<UpdateSpan>& spans) {
    cuda::launch_adamw(spans.data(), static_cast<int>(spans.size()), nullptr, kStream);
    finish();
  });
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i] == want[i]) << "span " << i;
}

TEST(CudaLaunches, SumsOfSquaresLargerThanTheirGrid) {
  constexpr std::int64_t kElems = 1'000'003;
  constexpr int kSpans = 40;  // 40 x 245 blocks of 4096 elements; the grid takes 8448 at a time
  const std::vector<float> values = normal_values(kElems, 5, 3.0F);
  const Buffer memory = copy_of(values);
  std::vector<cuda::SquaresSpan> spans;
  std::vector<double> want;
  for (int i = 0; i < kSpans; ++i) {
    spans.push_back({numbers(memory) + i, kElems - 100 * i});
    want.push_back(sum_squares(values.data() + i, kElems - 100 * i));
    if (i == 0) spans.back().elems = 0, want.back() = 0;
  }
  const Buffer scratch(static_cast<std::size_t>(cuda::squares_scratch(spans.data(), kSpans)) *
                       sizeof(double));
  const Buffer sums(kSpans * sizeof(double));
  cuda::launch_sum_squares(spans.data(), kSpans, data_of<double>(scratch), data_of<double>(sums),
                           kStream);
  finish();
  EXPECT_EQ(std::vector<double>(data_of<double>(sums), data_of<double>(sums) + kSpans), want);
}

TEST(CudaLaunches, TheStepIsDecidedAsOnTheHost) {
  const std::vector<double> sums{1e16, 1, 1, 3}, losses{0.1, 0.2, 0.3};
  const Buffer sums_at = copy_of(sums), losses_at = copy_of(losses);
  const Buffer out(sizeof(cuda::StepClip));
  const cuda::ClipInput in{.most = 0.25, .loss_scale = 1024, .loss_divisor = 7};
  cuda::launch_step_clip({data_of<double>(sums_at), 4, data_of<double>(losses_at), 3}, in,
                         data_of<cuda::StepClip>(out), kStream);
  finish();
  const cuda::StepClip want = cuda::decide_step(sums.data(), 4, losses.data(), 3, in);
  const cuda::StepClip& got = *data_of<cuda::StepClip>(out);
  EXPECT_EQ(got.loss_sum, want.loss_sum);
  EXPECT_EQ(got.squares, want.squares);
  EXPECT_EQ(got.grad_scale, want.grad_scale);
  EXPECT_EQ(got.updates, want.updates);
}

TEST(CudaLaunches, ColumnTotalsOfMoreThanOneTable) {
  std::deque<Buffer> want, got, parts;
  std::vector<cuda::ColumnTotal> sums;
  for (std::int64_t i = 0; i < 75; ++i) {
    const std::int64_t columns = i % 9 == 0 ? 0 : 1 + 61 * i % 200, blocks = 1 + i % 40;
    parts.push_back(random(DType::kFloat32, blocks * columns, static_cast<unsigned>(i)));
    want.push_back(random(DType::kFloat32, columns, 99));
    got.push_back(want.back());
    sums.push_back({numbers(got.back()), numbers(parts.back()), blocks, columns, i % 2 == 0});
    for (std::int64_t c = 0; c < columns; ++c) {
      float sum = i % 2 == 0 ? numbers(want.back())[c] : 0.0F;
      for (std::int64_t b = 0; b < blocks; ++b) sum += numbers(parts.back())[b * columns + c];
      numbers(want.back())[c] = sum;
    }
  }
  run_column_totals(sums.data(), static_cast<int>(sums.size()));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(got[i].content(), want[i].content()) << "sum " << i;
  }
}

void expect_ordered_adds(DType dtype, bool accumulate) {
  constexpr int kRanks = 3, kRank = 1;
  std::vector<CudaAddSegment> segments;
  std::int64_t total = 0;
  const auto elems_of = [](int i) {
    return i == 40 ? kLong : i % 10 == 0 ? 0 : 1 + 977 * i % 3000;
  };
  for (int i = 0; i < 170; ++i) total += elems_of(i);  // three launches
  const std::int64_t stride = total + 11;
  const Buffer own = random(dtype, total, 1), staged = random(dtype, stride * (kRanks - 1), 2);
  const Buffer want = random(DType::kFloat32, total, 3), got(want.content());
  const auto at = [&](const Buffer& buffer, std::int64_t elem) {
    return data_of<std::byte>(buffer) + elem * size_of(dtype);
  };
  std::int64_t begin = 0;
  for (int i = 0; i < 170; ++i) {
    const std::int64_t elems = elems_of(i);
    segments.push_back(
        {at(own, begin), at(staged, begin), numbers(got) + begin, elems, accumulate});
    const std::array<const void*, kRanks> shares{at(staged, begin), at(own, begin),
                                                 at(staged, stride + begin)};
    ordered_add(shares, dtype, elems, numbers(want) + begin, accumulate);
    begin += elems;
  }
  ordered_add_cuda(segments.data(), static_cast<int>(segments.size()),
                   {stride, kRank, kRanks, dtype}, kStream);
  finish();
  EXPECT_TRUE(got.content() == want.content()) << name_of(dtype) << ", " << accumulate;
}

TEST(CudaLaunches, OrderedAddsOfMoreThanOneTableAndGrid) {
  for (const DType dtype : kDTypes) {
    for (const bool accumulate : {false, true}) expect_ordered_adds(dtype, accumulate);
  }
}

// q, k and v of different sizes; together more packs than threads of the grid.
TEST(CudaLaunches, HeadsOfSeveralTensorsAreCopiedTogether) {
  constexpr std::int64_t kSeq = 1500, kHeads = 4, kDim = 64, kGroups[] = {3, 1, 2};
  cuda::HeadCopy all;
  std::deque<Buffer> tokens, packed;
  for (const std::int64_t group : kGroups) {
    const std::int64_t elems = kSeq * kHeads * group * kDim;
    tokens.push_back(random(DType::kFloat32, elems, static_cast<unsigned>(group)));
    packed.emplace_back(floats(elems));
    all.of[all.count++] = {.tokens = tokens.back().data(),
                           .sample_stride = elems,
                           .token_stride = kHeads * group * kDim,
                           .packed = packed.back().data(),
                           .rows = kSeq,
                           .group = group};
  }
  all.chunk = {.heads = kHeads, .kv_heads = kHeads, .seq = kSeq};
  all.head_dim = all.width = kDim;
  ASSERT_GT(kSeq * kHeads * kGroups[0] * kDim / 4, kLargestGrid * 256);
  run_copy_heads(all, false);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t group = kGroups[i];
    std::int64_t wrong = 0;
    for (std::int64_t to = 0; to < kSeq * kHeads * group * kDim; ++to) {
      const std::int64_t d = to % kDim, member = to / kDim % group;
      const std::int64_t token = to / kDim / group % kSeq, head = to / kDim / group / kSeq;
      const std::int64_t from = (token * kHeads * group + head * group + member) * kDim + d;
      wrong += numbers(packed[i])[to] != numbers(tokens[i])[from] ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << "tensor " << i;
  }
}

struct Operand {
  std::int64_t rows, columns;
  bool turned;
  [[nodiscard]] std::int64_t length() const { return turned ? (rows + 15) / 16 * 16 : columns; }
  [[nodiscard]] std::int64_t codes() const { return (turned ? columns : rows) * length(); }
};

// How many codes are not those of the core.
std::int64_t wrong_codes(const Operand& of, const std::vector<float>& values, float scale,
                         const std::uint8_t* codes) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < of.rows * of.columns; ++i) {
    const std::int64_t row = i / of.columns, column = i % of.columns;
    const std::int64_t at = of.turned ? column * of.length() + row : i;
    const float value = values[static_cast<std::size_t>(i)] * scale;
    wrong += codes[at] != fp8::encode<fp8::E4M3>(value) ? 1 : 0;
  }
  return wrong;
}

// Three operands of different sizes and layouts, two of them larger than the grid.
TEST(CudaLaunches, Fp8OperandsOfOneLaunch) {
  constexpr Operand kOperands[] = {{2200, 2048, true}, {2200, 2048, false}, {33, 16, true}};
  cuda::Fp8Operands all;
  std::deque<Buffer> x, codes, parts, inverse;
  for (const Operand& of : kOperands) {
    x.push_back(random(DType::kBFloat16, of.rows * of.columns, 8, static_cast<float>(of.rows)));
    codes.emplace_back(Bytes(static_cast<std::size_t>(of.codes())));
    parts.emplace_back(cuda::kFp8Parts * sizeof(std::uint32_t));
    inverse.emplace_back(sizeof(float));
    cuda::Fp8Operand& a = all.of[all.count++];
    a = {.x = x.back().data(), .rows = of.rows, .columns = of.columns, .stride = of.columns};
    a.parts = data_of<std::uint32_t>(parts.back());
    a.inverse = numbers(inverse.back());
    (of.turned ? a.turned : a.codes) = codes.back().data();
  }
  run_fp8_quantise(all);
  for (std::size_t i = 0; i < std::size(kOperands); ++i) {
    const std::vector<float> values = x[i].values(DType::kBFloat16);
    std::uint32_t amax = 0;
    for (const float value : values) amax = std::max(amax, fp8::magnitude(value));
    EXPECT_EQ(numbers(inverse[i])[0], fp8::inverse_scale_of<fp8::E4M3>(amax));
    EXPECT_EQ(wrong_codes(kOperands[i], values, fp8::scale_of<fp8::E4M3>(amax),
                          data_of<std::uint8_t>(codes[i])),
              0)
        << "operand " << i;
  }
}

TEST(CudaLaunches, NoWorkIsNoLaunch) {
  run_gelu({});
  run_gelu_gradient({});
  run_swiglu({});
  run_swiglu_gradient({});
  run_rope({});
  run_branch({});
  run_norm_forward({}, nullptr);
  run_branch_norm({}, {}, nullptr);
  run_norm_input_gradient({}, {});
  run_norm_parts({}, {});
  run_column_parts({});
  run_join_rows({});
  run_column_totals(nullptr, 0);
  run_embedding_gradient({});
  run_token_lookup({});
  run_entropy({});
  run_entropy_parts({}, nullptr);
  run_copy_heads({}, false);
  run_attention_scores({});
  cuda::launch_adamw(nullptr, 0, nullptr, kStream);
  ordered_add_cuda(nullptr, 0, {}, kStream);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace sluice::testing
