// The CUDA kernels of attention by products (cuda_runs.hpp): softmax and its gradient against
// doubles, masks against the CPU's bits, copies of heads element by element.
#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/philox.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kSeq = 301, kKvHeads = 3, kGroup = 2, kSamples = 2, kFirstHead = 5;

double rounding_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4e-6 : dtype == DType::kBFloat16 ? 4e-3 : 5e-4;
}

// A block of queries of a chunk that begins and ends within samples.
struct ScoreCase {
  std::int64_t first_query, queries, first_key, keys, window;
  bool packed = false;
  double p = 0;

  [[nodiscard]] std::int64_t rows() const { return kHeads * queries * kGroup; }
  [[nodiscard]] cuda::AttentionScores args(DType dtype) const {
    cuda::AttentionScores a;
    a.dtype = dtype;
    a.chunk = {.first = 1, .heads = kHeads, .kv_heads = kKvHeads, .seq = kSeq};
    a.group = kGroup;
    a.queries = queries;
    a.keys = keys;
    a.first_query = first_query;
    a.first_key = first_key;
    a.window = window;
    a.positions = packed ? data_of<std::int64_t>(documents()) : nullptr;
    a.scale = 0.3F;
    if (p > 0) {
      a.mask.threshold = dropout_threshold(p);
      a.mask.keep = static_cast<float>(1.0 / (1.0 - p));
      a.mask.seed = 21;
      a.mask.step = 22;
      a.mask.first_sample = 23;
      a.mask.site = 24;
    }
    a.first_head = kFirstHead;
    return a;
  }

  // Place of a row.
  struct At {
    std::int64_t sample, head, token;
  };
  [[nodiscard]] At at(std::int64_t row) const {
    const std::int64_t member = row % kGroup, query = row / kGroup % queries;
    const std::int64_t number = 1 + row / kGroup / queries;
    return {number / kKvHeads, number % kKvHeads * kGroup + member, first_query + query};
  }
  [[nodiscard]] bool sees(const At& at, std::int64_t key) const {
    const std::int64_t document =
        packed ? at.token - positions()[static_cast<std::size_t>(at.sample * kSeq + at.token)] : 0;
    return key <= at.token && key >= document && (window == 0 || key > at.token - window);
  }
  // The factors of the row's columns: the CPU's masks.
  [[nodiscard]] std::vector<float> factors(const At& at) const {
    std::vector<float> result(static_cast<std::size_t>(keys), 1.0F);
    const std::array<std::uint64_t, 3> key{22, 23 + static_cast<std::uint64_t>(at.sample), 24};
    const std::int64_t element = ((kFirstHead + at.head) * kSeq + at.token) * kSeq + first_key;
    if (p > 0) fill_dropout_mask(std::span<float>(result), 21, hash_stream(key), element, p);
    return result;
  }
  // Rows of three documents each.
  static const std::vector<std::int64_t>& positions() {
    static const std::vector<std::int64_t> all = [] {
      std::vector<std::int64_t> made;
      for (std::int64_t b = 0; b < kSamples; ++b) {
        for (std::int64_t t = 0; t < kSeq; ++t) {
          made.push_back(t >= 217 ? t - 217 : t >= 70 + b ? t - 70 - b : t);
        }
      }
      return made;
    }();
    return all;
  }

  static const Buffer& documents() {
    static const Buffer all = copy_of(positions());
    return all;
  }

  static constexpr std::int64_t kHeads = 4;
};

std::vector<ScoreCase> score_cases() {
  std::vector<ScoreCase> all;
  for (const double p : {0.0, 0.3}) {
    all.push_back({0, 301, 0, 304, 0, false, p});
    all.push_back({256, 45, 0, 304, 0, false, p});
    all.push_back({256, 45, 232, 72, 19, false, p});
    all.push_back({100, 150, 0, 256, 0, true, p});
    all.push_back({3, 60, 0, 64, 8, true, p});
    all.push_back({0, 1, 0, 8, 0, false, p});
  }
  return all;
}

// What a row's weights and gradients are, in double.
struct RowOracle {
  RowOracle(const ScoreCase& c, std::int64_t row, const float* scores, const float* grad)
      : factor(c.factors(c.at(row))) {
    const auto keys = static_cast<std::size_t>(c.keys);
    weights.resize(keys);
    score_grad.resize(keys);
    double max = -1e30, sum = 0, dot = 0;
    const auto each = [&](auto f) {
      for (std::size_t k = 0; k < keys; ++k) {
        if (c.sees(c.at(row), c.first_key + static_cast<std::int64_t>(k))) f(k);
      }
    };
    each([&](std::size_t k) { max = std::max(max, 0.3 * static_cast<double>(scores[k])); });
    each([&](std::size_t k) {
      weights[k] = std::exp(0.3 * static_cast<double>(scores[k]) - max);
      sum += weights[k];
    });
    each([&](std::size_t k) {
      weights[k] /= sum;
      if (grad != nullptr) dot += weights[k] * static_cast<double>(grad[k] * factor[k]);
    });
    each([&](std::size_t k) {
      if (grad != nullptr) {
        score_grad[k] = 0.3 * weights[k] * (static_cast<double>(grad[k] * factor[k]) - dot);
      }
      weights[k] *= static_cast<double>(factor[k]);
    });
  }
  std::vector<float> factor;
  std::vector<double> weights, score_grad;
};

void expect_rows(const ScoreCase& c, DType dtype, const Buffer& scores, const Buffer* grad,
                 const std::vector<float>& weights, const std::vector<float>& score_grad) {
  for (std::int64_t row = 0; row < c.rows(); ++row) {
    const std::int64_t first = row * c.keys;
    const RowOracle want(c, row, numbers(scores) + first,
                         grad == nullptr ? nullptr : numbers(*grad) + first);
    for (std::int64_t k = 0; k < c.keys; ++k) {
      const auto column = static_cast<std::size_t>(k), i = static_cast<std::size_t>(first + k);
      const double weight = want.weights[column];
      ASSERT_NEAR(weights[i], weight, rounding_of(dtype) * weight + 4e-8) << row << ", " << k;
      if (weight == 0) {
        ASSERT_EQ(weights[i], 0) << row << ", " << k;
      }
      if (grad == nullptr) continue;
      const double gradient = want.score_grad[column];
      ASSERT_NEAR(score_grad[i], gradient, rounding_of(dtype) * std::abs(gradient) + 2e-6)
          << row << ", " << k;
      if (!c.sees(c.at(row), c.first_key + k)) {
        ASSERT_EQ(score_grad[i], 0) << row << ", " << k;
      }
    }
  }
}

TEST(CudaAttentionBody, WeightsAgreeWithDoublesAndDropTheCpusElements) {
  for (const ScoreCase& c : score_cases()) {
    for (const DType dtype : kDTypes) {
      const Buffer scores = random(DType::kFloat32, c.rows() * c.keys, 41, 5.0F);
      const Buffer weights(static_cast<std::size_t>(c.rows() * c.keys * size_of(dtype)));
      std::memset(weights.data(), 0x11, weights.content().size());
      cuda::AttentionScores args = c.args(dtype);
      args.scores = numbers(scores);
      args.weights = weights.data();
      run_attention_scores(args);
      expect_rows(c, dtype, scores, nullptr, weights.values(dtype), {});
    }
  }
}

TEST(CudaAttentionBody, GradientsAgreeWithDoubles) {
  for (const ScoreCase& c : score_cases()) {
    for (const DType dtype : kDTypes) {
      const Buffer scores = random(DType::kFloat32, c.rows() * c.keys, 42, 5.0F);
      const Buffer grad = random(DType::kFloat32, c.rows() * c.keys, 43);
      // In fp32 results take the place of what the kernel reads.
      const bool in_place = dtype == DType::kFloat32;
      const Buffer own_scores = scores, own_grad = grad;
      const auto bytes = static_cast<std::size_t>(c.rows() * c.keys * size_of(dtype));
      const Buffer weights(bytes), score_grad(bytes);
      std::memset(weights.data(), 0x11, bytes);
      std::memset(score_grad.data(), 0x11, bytes);
      cuda::AttentionScores args = c.args(dtype);
      args.scores = numbers(own_scores);
      args.grad = numbers(own_grad);
      args.weights = in_place ? own_scores.data() : weights.data();
      args.score_grad = in_place ? own_grad.data() : score_grad.data();
      run_attention_scores(args);
      expect_rows(c, dtype, scores, &grad, (in_place ? own_scores : weights).values(dtype),
                  (in_place ? own_grad : score_grad).values(dtype));
    }
  }
}

// q, k and v of one fused tensor, as a block has them.
struct FusedHeads {
  explicit FusedHeads(std::int64_t head) : dim(head), width((head + 7) / 8 * 8) {}
  std::int64_t dim, width;
  std::int64_t seq = 13, rows = 16;

  [[nodiscard]] std::int64_t token_stride() const { return (kGroup + 2) * kKvHeads * dim; }
  [[nodiscard]] std::int64_t elems() const { return kSamples * seq * token_stride(); }
  [[nodiscard]] cuda::HeadCopy args(DType dtype, void* tokens, void* packed, bool keys) const {
    cuda::HeadCopy a;
    const std::int64_t first = keys ? kGroup * kKvHeads * dim : 0;
    a.of[0] = {.tokens = static_cast<std::byte*>(tokens) + first * size_of(dtype),
               .sample_stride = seq * token_stride(),
               .token_stride = token_stride(),
               .packed = packed,
               .rows = keys ? rows : seq,
               .group = keys ? 1 : kGroup};
    a.count = 1;
    a.dtype = dtype;
    a.chunk = {.first = 1, .heads = 4, .kv_heads = kKvHeads, .seq = seq};
    a.head_dim = dim;
    a.width = width;
    return a;
  }
  // f(element among the tokens or -1 for padding, element of the packed memory).
  template <class Fn>
  void each(bool keys, Fn f) const {
    const std::int64_t group = keys ? 1 : kGroup, tokens = keys ? rows : seq;
    std::int64_t packed = 0;
    for (std::int64_t number = 1; number < 5; ++number) {
      for (std::int64_t line = 0; line < tokens * group; ++line) {
        const std::int64_t head = number % kKvHeads * group + line % group;
        const std::int64_t token = line / group + number / kKvHeads * seq;
        for (std::int64_t d = 0; d < width; ++d) {
          const bool real = line / group < seq && d < dim;
          f(real ? token * token_stride() + (keys ? kGroup * kKvHeads * dim : 0) + head * dim + d
                 : std::int64_t{-1},
            packed++);
        }
      }
    }
  }
};

TEST(CudaAttentionBody, HeadsArePackedAndUnpacked) {
  for (const std::int64_t dim : {64, 20, 5}) {
    for (const bool keys : {false, true}) {
      for (const DType dtype : kDTypes) {
        const FusedHeads heads(dim);
        const std::int64_t packed_elems =
            4 * (keys ? heads.rows : heads.seq * kGroup) * heads.width;
        const Buffer tokens = random(dtype, heads.elems(), 51);
        const Buffer packed(static_cast<std::size_t>(packed_elems * size_of(dtype)));
        run_copy_heads(heads.args(dtype, tokens.data(), packed.data(), keys), false);
        const std::vector<float> from = tokens.values(dtype), to = packed.values(dtype);
        heads.each(keys, [&](std::int64_t token, std::int64_t at) {
          ASSERT_EQ(to[static_cast<std::size_t>(at)],
                    token < 0 ? 0 : from[static_cast<std::size_t>(token)]);
        });
        const Buffer wide = random(DType::kFloat32, packed_elems, 52), back = tokens;
        run_copy_heads(heads.args(dtype, back.data(), wide.data(), keys), true);
        std::vector<float> want = from;
        heads.each(keys, [&](std::int64_t token, std::int64_t at) {
          if (token >= 0) want[static_cast<std::size_t>(token)] = rounded(numbers(wide)[at], dtype);
        });
        EXPECT_EQ(back.values(dtype), want) << dim << ", keys " << keys;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
