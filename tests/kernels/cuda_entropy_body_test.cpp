// The CUDA kernels of cross entropy (cuda_runs.hpp) against doubles and the CPU's slices.
#include "kernels/cpu/slice_entropy.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

static_assert(cuda::kNoTarget == kIgnoreTarget);

constexpr std::int64_t kVocab = 1003, kStride = 1024, kTexts = 9;
// Rows of several warps, and of all that a row may have: more slabs than the first two waits cover.
constexpr std::int64_t kWide = 5003, kWidest = 120'003;

struct EntropyCase {
  explicit EntropyCase(float std, std::int64_t words = kVocab)
      : vocab(words),
        stride((words / 64 + 1) * 64),
        logits(random(DType::kFloat32, kTexts * stride, 31, std)),
        after(logits),
        losses(floats(kTexts)) {
    for (std::int64_t row = 0; row < kTexts; ++row) targets.push_back(row * 113'113 % vocab);
    targets[3] = kIgnoreTarget;
    targets[4] = vocab - 1;
  }

  // Of a copy of the logits, which `after` has then.
  void run(bool gradient, DType dtype, float scale = 0.25F,
           const cuda::StepScalars* scalars = nullptr) {
    std::memcpy(after.data(), logits.data(), logits.content().size());
    const Buffer rows = copy_of(targets);
    run_entropy({.logits = numbers(after),
                 .gradient = gradient,
                 .losses = numbers(losses),
                 .targets = data_of<std::int64_t>(rows),
                 .dtype = dtype,
                 .rows = kTexts,
                 .vocab = vocab,
                 .row_stride = stride,
                 .scale = scale,
                 .scalars = scalars});
  }

  // Of column c, by the row's log_sum: (softmax - onehot) / 4.
  [[nodiscard]] double gradient(std::int64_t row, std::int64_t c, double log_sum) const {
    const std::int64_t target = targets[static_cast<std::size_t>(row)];
    if (target == kIgnoreTarget) return 0;
    return (std::exp(at(row, c) - log_sum) - (c == target ? 1 : 0)) / 4;
  }
  [[nodiscard]] double loss(std::int64_t row) const {
    const std::int64_t target = targets[static_cast<std::size_t>(row)];
    return target == kIgnoreTarget ? 0 : log_sum(row) - at(row, target);
  }
  // ln of the sum of exponentials.
  [[nodiscard]] double log_sum(std::int64_t row) const {
    double sum = 0, max = at(row, 0);
    for (std::int64_t c = 0; c < vocab; ++c) max = std::max(max, at(row, c));
    for (std::int64_t c = 0; c < vocab; ++c) sum += std::exp(at(row, c) - max);
    return max + std::log(sum);
  }

  std::int64_t vocab, stride;
  Buffer logits, after, losses;
  std::vector<std::int64_t> targets;

 private:
  [[nodiscard]] double at(std::int64_t row, std::int64_t c) const {
    return numbers(logits)[row * stride + c];
  }
};

double rounding_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4e-6 : dtype == DType::kBFloat16 ? 4e-3 : 5e-4;
}

void expect_doubles(float std, std::int64_t vocab, DType dtype) {
  EntropyCase c(std, vocab);
  c.run(true, dtype);
  const std::vector<float> got = c.after.values(dtype);
  const std::int64_t row_elems = c.stride * 4 / size_of(dtype);
  for (std::int64_t row = 0; row < kTexts; ++row) {
    const double log_sum = c.log_sum(row);
    EXPECT_NEAR(numbers(c.losses)[row], c.loss(row), 2e-6 * (1 + std::abs(log_sum)));
    for (std::int64_t i = 0; i < vocab; ++i) {
      const double want = c.gradient(row, i, log_sum);
      ASSERT_NEAR(got[static_cast<std::size_t>(row * row_elems + i)], want,
                  rounding_of(dtype) * std::abs(want) + 5e-8)
          << name_of(dtype) << ", row " << row << ", column " << i << " of " << vocab;
    }
  }
}

TEST(CudaEntropyBody, AgreesWithDoubles) {
  for (const float std : {1.0F, 30.0F}) {
    for (const DType dtype : kDTypes) {
      for (const std::int64_t vocab : {std::int64_t{5}, kVocab, kWide}) {
        expect_doubles(std, vocab, dtype);
      }
    }
  }
  expect_doubles(1.0F, kWidest, DType::kBFloat16);
}

// Whatever the number of a row's warps, and where they end.
TEST(CudaEntropyBody, InfinitiesAndMasksOfManyWarps) {
  EntropyCase c(1.0F, kWide);
  for (std::int64_t i = 1; i < kWide; ++i) numbers(c.logits)[i] = -kInf;  // all but the target
  numbers(c.logits)[c.stride + 4000] = kInf;
  numbers(c.logits)[2 * c.stride + 4999] = kNan;
  for (std::int64_t i = 0; i < kWide; ++i) numbers(c.logits)[5 * c.stride + i] = -kInf;
  c.run(true, DType::kFloat32);
  EXPECT_EQ(numbers(c.losses)[0], 0);
  for (std::int64_t i = 0; i < kWide; ++i) EXPECT_EQ(numbers(c.after)[i], 0) << i;
  EXPECT_EQ(numbers(c.losses)[1], kInf);
  for (const int row : {2, 5}) EXPECT_TRUE(std::isnan(numbers(c.losses)[row])) << row;
}

// The gradient takes the first vocab elements of a row; the rest of the row keeps its bytes.
TEST(CudaEntropyBody, GradientReplacesTheLogitsAndLossNeedsNone) {
  for (const DType dtype : kDTypes) {
    EntropyCase c(2.0F);
    c.run(true, dtype);
    const Buffer losses = c.losses;
    for (std::int64_t row = 0; row < kTexts; ++row) {
      const std::int64_t begin = row * kStride * 4 + kVocab * size_of(dtype);
      const Bytes after = c.after.content(), logits = c.logits.content();
      EXPECT_TRUE(std::equal(after.begin() + begin, after.begin() + (row + 1) * kStride * 4,
                             logits.begin() + begin));
    }
    c.run(false, dtype);
    EXPECT_EQ(c.after.content(), c.logits.content());
    EXPECT_EQ(c.losses.content(), losses.content());
  }
}

TEST(CudaEntropyBody, TheStepsFactorInMemoryIsTheScale) {
  EntropyCase given(2.0F), read(2.0F);
  const Buffer scalars = copy_of<cuda::StepScalars>({{.step = 3, .loss_factor = 0.3F}});
  given.run(true, DType::kFloat32, 0.3F);
  read.run(true, DType::kFloat32, 0.25F, data_of<cuda::StepScalars>(scalars));
  EXPECT_EQ(read.after.content(), given.after.content());
}

TEST(CudaEntropyBody, MasksAndFaults) {
  EntropyCase c(1.0F);
  numbers(c.logits)[5] = -kInf;               // a mask
  numbers(c.logits)[kStride + 7] = kNan;      // in the second row
  numbers(c.logits)[2 * kStride + 7] = kInf;  // in the third
  c.targets[5] = kVocab;
  c.targets[6] = -1;
  c.run(false, DType::kFloat32);
  EXPECT_NEAR(numbers(c.losses)[0], c.loss(0), 1e-4);
  for (const int row : {1, 2, 5, 6}) EXPECT_FALSE(std::isfinite(numbers(c.losses)[row])) << row;
  EXPECT_EQ(numbers(c.losses)[3], 0);
}

// The same rows, their words cut over three ranks.
class SlicedRows {
 public:
  explicit SlicedRows(const EntropyCase& whole) : whole_(whole), targets_(copy_of(whole.targets)) {
    for (const auto& [first, words] : kCuts) {
      Buffer own(floats(kTexts * kSliceStride));
      std::memset(own.data(), 0x7f, own.content().size());  // what lies between rows is not read
      for (std::int64_t row = 0; row < kTexts; ++row) {
        std::memcpy(numbers(own) + row * kSliceStride,
                    numbers(whole.logits) + row * kStride + first, floats(words));
      }
      logits_.push_back(own);
      const auto at = static_cast<std::int64_t>(logits_.size() - 1);
      run_entropy_parts(args(at), data_of<cuda::EntropyPart>(parts_) + at * kTexts);
    }
  }

  // Losses and fp32 gradient of a slice.
  struct Result {
    Buffer losses, gradient;
  };
  [[nodiscard]] Result run(std::int64_t slice) const {
    Result result{Buffer(floats(kTexts)), logits_[static_cast<std::size_t>(slice)]};
    cuda::EntropyArgs a = args(slice);
    a.losses = numbers(result.losses);
    a.logits = numbers(result.gradient);
    a.gradient = true;
    a.slices.parts = data_of<cuda::EntropyPart>(parts_);
    run_entropy(a);
    return result;
  }

  // The loss of the CPU's slices.
  [[nodiscard]] double cpu_loss() const {
    std::vector<RowPart> parts(static_cast<std::size_t>(kTexts) * kCuts.size());
    std::vector<std::vector<float>> own;
    EntropySlice slice;
    for (std::size_t at = 0; at < kCuts.size(); ++at) {
      const auto [first, words] = kCuts[at];
      own.emplace_back();
      for (std::int64_t row = 0; row < kTexts; ++row) {
        const float* from = numbers(logits_[at]) + row * kSliceStride;
        own.back().insert(own.back().end(), from, from + words);
      }
      slice = {own.back().data(), kTexts, words, first, kVocab, whole_.targets.data()};
      slice_softmax(slice, parts.data() + at * kTexts, false);
    }
    return slice_loss(slice, parts);
  }

  static constexpr std::array<std::pair<std::int64_t, std::int64_t>, 3> kCuts{
      {{0, 400}, {400, 408}, {808, 195}}};
  static constexpr std::int64_t kSliceStride = 512;

 private:
  [[nodiscard]] cuda::EntropyArgs args(std::int64_t slice) const {
    const auto [first, words] = kCuts[static_cast<std::size_t>(slice)];
    return {.logits = numbers(logits_[static_cast<std::size_t>(slice)]),
            .targets = data_of<std::int64_t>(targets_),
            .rows = kTexts,
            .vocab = words,
            .row_stride = kSliceStride,
            .scale = 0.25F,
            .slices = {.ranks = 3, .first = first, .words = kVocab}};
  }

  const EntropyCase& whole_;
  const Buffer targets_;
  std::vector<Buffer> logits_;
  const Buffer parts_ =
      copy_of(std::vector<cuda::EntropyPart>(static_cast<std::size_t>(kTexts) * kCuts.size()));
};

TEST(CudaEntropyBody, SlicesAgreeWithWholeRows) {
  for (const float std : {1.0F, 30.0F}) {
    EntropyCase whole(std);
    for (std::int64_t i = 400; i < 808; ++i) numbers(whole.logits)[i] = -kInf;  // a whole slice
    const SlicedRows sliced(whole);
    const SlicedRows::Result first = sliced.run(0);
    double sum = 0;
    for (std::int64_t row = 0; row < kTexts; ++row) {
      EXPECT_NEAR(numbers(first.losses)[row], whole.loss(row),
                  2e-6 * (1 + std::abs(whole.log_sum(row))));
      sum += double{numbers(first.losses)[row]};
    }
    EXPECT_NEAR(sum, sliced.cpu_loss(), 1e-5 * sum);
    for (std::int64_t slice = 0; slice < 3; ++slice) {
      const SlicedRows::Result got = sliced.run(slice);
      EXPECT_EQ(got.losses.content(), first.losses.content()) << "every rank has the same bits";
      const auto [begin, words] = SlicedRows::kCuts[static_cast<std::size_t>(slice)];
      for (std::int64_t row = 0; row < kTexts; ++row) {
        const double log_sum = whole.log_sum(row);
        for (std::int64_t i = 0; i < words; ++i) {
          const double want = whole.gradient(row, begin + i, log_sum);
          EXPECT_NEAR(numbers(got.gradient)[row * SlicedRows::kSliceStride + i], want,
                      4e-6 * std::abs(want) + 5e-8);
        }
      }
    }
  }
}

TEST(CudaEntropyBody, SlicesHideNoFault) {
  EntropyCase whole(1.0F);
  numbers(whole.logits)[kStride + 907] = kNan;      // of the last slice, in the second row
  numbers(whole.logits)[2 * kStride + 407] = kInf;  // of the one in the middle, in the third
  for (std::int64_t i = 0; i < kVocab; ++i) numbers(whole.logits)[7 * kStride + i] = -kInf;
  whole.targets[5] = kVocab;
  whole.targets[6] = -1;
  const SlicedRows::Result got = SlicedRows(whole).run(0);
  for (const int row : {1, 2, 5, 6, 7})
    EXPECT_FALSE(std::isfinite(numbers(got.losses)[row])) << row;
  for (const int row : {0, 4, 8}) EXPECT_TRUE(std::isfinite(numbers(got.losses)[row])) << row;
  EXPECT_EQ(numbers(got.losses)[3], 0);
}

}  // namespace
}  // namespace sluice::testing
