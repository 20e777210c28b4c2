// Softmax cross entropy of one row of fp32 logits by one thread block: one pass for maximum and sum
// of exponentials, one that puts the gradient in the place of the logits. Exponentials are the
// hardware's, to some 1e-6 of the largest; sums have an order that the number of columns decides.
#pragma once

#include "kernels/cuda/activation_body.hpp"
#include "kernels/cuda/team.hpp"

namespace sluice::cuda {

// Maximum of some logits, and the sum of exp(logit - maximum).
struct MaxSum {
  float max = -__builtin_huge_valf();
  float sum = 0;
};

SLUICE_BODY float scaled_to(const MaxSum& part, float max) {
  return part.max == max ? part.sum : part.sum * exp32(part.max - max);
}

// Symmetric, as Team::reduce and Warp::reduce want.
struct MergeMaxSum {
  SLUICE_BODY MaxSum operator()(const MaxSum& a, const MaxSum& b) const {
    const float max = a.max > b.max ? a.max : b.max;
    return {max, scaled_to(a, max) + scaled_to(b, max)};
  }
};

// Four elements, or n where a row ends.
template <class T>
SLUICE_BODY void store_quad(T* to, const Pack<float>& values, std::int64_t n) {
  constexpr int kSize = Pack<float>::kSize;
  if (n < kSize) {
    for (int j = 0; j < kSize; ++j) {
      if (j < n) narrow(values.v[j], to + j);
    }
    return;
  }
  Quad<T> quad;
  for (int j = 0; j < kSize; ++j) narrow(values.v[j], &quad.v[j]);
  store_quad(quad, to);
}

SLUICE_BODY float scale_of(const EntropyArgs& a) {
  return a.scalars == nullptr ? a.scale : a.scalars->loss_factor;
}

// The beginning of a row's gradient, in the place of its logits.
template <class T>
SLUICE_BODY T* gradient_row(const EntropyArgs& a, std::int64_t row) {
  return reinterpret_cast<T*>(a.logits + row * a.row_stride);
}

// Threads of a row: the largest power of two up to kTeamThreads that leaves each thread at least 32
// logits (two loads); kWarp for short rows. A long row takes many threads, so few rows are in work
// at a time, and the second pass may find the logits in the GPU's cache.
inline int entropy_threads(std::int64_t vocab) {
  constexpr std::int64_t kOfThread = 32;  // logits
  int threads = kWarp;
  while (threads < kTeamThreads && 2 * threads * kOfThread <= vocab) threads *= 2;
  return threads;
}

// The launchers refuse more columns: numbers of columns past the end must also fit an int.
inline constexpr std::int64_t kMostColumns = 1 << 30;
SLUICE_BODY int columns_of(const EntropyArgs& a) { return static_cast<int>(a.vocab); }

// exp(x) for x <= 0, to some 1e-6 of 1.
SLUICE_BODY float exp_near(float x) {
#ifdef __CUDACC__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 0x1.715476p+0F));
  return result;
#else
  return std::exp(x);
#endif
}

// The larger number. If one is a NaN, the other.
SLUICE_BODY float larger(float a, float b) { return fmaxf(a, b); }

// The logits that a thread loads at once: kPacks packs. Between two of these packs lies one pack of
// every other thread of the team.
struct Logits {
  static constexpr int kPacks = 4, kSize = Pack<float>::kSize;
  Pack<float> at[kPacks];

  // Logits of all threads.
  static SLUICE_BODY int of_team(const Team& team) { return team.threads() * kPacks * kSize; }
};

// Loads a thread's logits from x on. Elements from `count` on are minus infinity.
SLUICE_BODY Logits load_logits(const float* x, int count, const Team& team) {
  constexpr int kSize = Logits::kSize, kPacks = Logits::kPacks;
  const int step = team.threads() * kSize;
  Logits logits;
  if (count >= (kPacks - 1) * step + kSize) {
    RawPack<float> raw[kPacks];
    for (int p = 0; p < kPacks; ++p) load_raw(x + p * step, &raw[p]);
    for (int p = 0; p < kPacks; ++p) logits.at[p] = widen(raw[p]);
    return logits;
  }
  for (int p = 0; p < kPacks; ++p) {
    logits.at[p] = load_pack(x + p * step, count - p * step, true);
    for (int j = 0; j < kSize; ++j) {
      if (p * step + j >= count) logits.at[p].v[j] = MaxSum{}.max;
    }
  }
  return logits;
}

// A NaN among the logits never becomes the maximum, but makes the sum NaN. The subtracted base is
// finite, so a logit of minus infinity adds 0, and plus infinity makes the sum infinite.
SLUICE_BODY MaxSum with_logits(const MaxSum& before, const Logits& x) {
  constexpr float kLargest = 0x1.fffffep+127F;
  float max = before.max;
  for (const Pack<float>& pack : x.at) {
    max = larger(max, larger(larger(pack.v[0], pack.v[1]), larger(pack.v[2], pack.v[3])));
  }
  const float base = larger(-kLargest, max < kLargest ? max : kLargest);
  float sum = scaled_to(before, max);
  for (const Pack<float>& pack : x.at) {
    sum += (exp_near(pack.v[0] - base) + exp_near(pack.v[1] - base)) +
           (exp_near(pack.v[2] - base) + exp_near(pack.v[3] - base));
  }
  return {max, sum};
}

SLUICE_BODY MaxSum max_sum_of_columns(const EntropyArgs& a, std::int64_t row, const Team& team) {
  const float* x = a.logits + row * a.row_stride;
  const int columns = columns_of(a);
  return team.reduce(
      [&](int thread) {
        MaxSum part;
        for (int i = thread * Logits::kSize; i < columns; i += Logits::of_team(team)) {
          part = with_logits(part, load_logits(x + i, columns - i, team));
        }
        return part;
      },
      MergeMaxSum{});
}

// The factors of a row's gradient, (softmax - onehot) scale.
struct EntropySlope {
  MaxSum all;
  float scale;
  float factor;  // scale / sum
};

// At `target` p - 1 in double, because near p = 1 the fp32 difference has no correct digits.
template <class T>
SLUICE_BODY void store_gradient(T* to, Pack<float> at, int count, int target,
                                const EntropySlope& slope) {
  constexpr int kSize = Logits::kSize;
  for (int j = 0; j < kSize; ++j) at.v[j] = exp_near(at.v[j] - slope.all.max);
  Pack<float> grad;
  for (int j = 0; j < kSize; ++j) grad.v[j] = at.v[j] * slope.factor;
  if (target >= 0 && target < kSize) {
    for (int j = 0; j < kSize; ++j) {
      if (j != target) continue;
      const double p = static_cast<double>(at.v[j]) / static_cast<double>(slope.all.sum);
      grad.v[j] = static_cast<float>((p - 1.0) * static_cast<double>(slope.scale));
    }
  }
  store_quad(to, grad, count);
}

// A 16-bit gradient overwrites the first half of its row, where logits of other threads lie. A slab
// is the logits that all threads load at once. The gradient of slab k overwrites a part of slab
// k / 2. Once all threads have loaded slab b, the gradients of slabs up to 2 b + 1 may be stored:
// threads wait in slabs 0, 2, 6, 14, ...
template <class T>
SLUICE_BODY void entropy_gradient(const EntropyArgs& a, std::int64_t row, const MaxSum& all,
                                  const Team& team) {
  const float* x = a.logits + row * a.row_stride;
  const int columns = columns_of(a);
  T* to = gradient_row<T>(a, row);
  const std::int64_t word = a.targets[row] - a.slices.first;
  const int target = word >= 0 && word < columns ? static_cast<int>(word) : -1;  // its column
  const float scale = scale_of(a);
  const EntropySlope slope{all, scale, quotient(scale, all.sum)};
  const int step = team.threads() * Logits::kSize;
  int begin = 0;
  for (unsigned slab = 0; begin < columns; ++slab, begin += Logits::of_team(team)) {
    const bool waits = ((slab + 2) & (slab + 1)) == 0;
    const auto column = [begin](int thread) { return begin + thread * Logits::kSize; };
    team.each_after(
        waits,
        [&](int thread) { return load_logits(x + column(thread), columns - column(thread), team); },
        [&](int thread, const Logits& logits) {
          for (int p = 0; p < Logits::kPacks; ++p) {
            const int i = column(thread) + p * step;
            if (i < columns) store_gradient(to + i, logits.at[p], columns - i, target - i, slope);
          }
        });
  }
}

// Maximum and sum of a row's words, and the logit of its target.
struct EntropyRow {
  MaxSum all;
  float target = 0;
};

SLUICE_BODY EntropyRow merged_parts(const EntropyArgs& a, std::int64_t row) {
  EntropyRow whole;
  for (int r = 0; r < a.slices.ranks; ++r) {
    const EntropyPart& part = a.slices.parts[r * a.rows + row];
    whole.all = MergeMaxSum{}(whole.all, {part.max, part.sum});
    whole.target += part.target;
  }
  return whole;
}

SLUICE_BODY EntropyRow whole_row(const EntropyArgs& a, std::int64_t row, const Team& team) {
  const bool sliced = a.slices.parts != nullptr;
  const std::int64_t target = a.targets[row];
  EntropyRow whole;
  if (sliced) {
    whole = merged_parts(a, row);
  } else {
    whole.all = max_sum_of_columns(a, row, team);
  }
  if (target < 0 || target >= (sliced ? a.slices.words : a.vocab)) {
    whole.target = from_bits(0x7fc00000U);  // NaN
  } else if (!sliced) {
    whole.target = a.logits[row * a.row_stride + target];
  }
  return whole;
}

template <class T>
SLUICE_BODY void entropy_body(const EntropyArgs& a, std::int64_t row, const Team& team) {
  if (a.targets[row] == kNoTarget) {
    team.each([&](int thread) {
      if (thread == 0) a.losses[row] = 0;
      const Pack<float> zeros = {};
      const int columns = a.gradient ? columns_of(a) : 0, step = team.threads() * Logits::kSize;
      for (int i = thread * Logits::kSize; i < columns; i += step) {
        store_quad(gradient_row<T>(a, row) + i, zeros, columns - i);
      }
    });
    return;
  }
  const EntropyRow whole = whole_row(a, row, team);
  team.each([&](int thread) {
    if (thread == 0) a.losses[row] = logarithm(whole.all.sum) + (whole.all.max - whole.target);
  });
  if (a.gradient) entropy_gradient<T>(a, row, whole.all, team);
}

SLUICE_BODY void entropy_part_body(const EntropyArgs& a, std::int64_t row, const Team& team,
                                   EntropyPart* parts) {
  const std::int64_t column = a.targets[row] - a.slices.first;
  const MaxSum own = max_sum_of_columns(a, row, team);
  const bool has_target = column >= 0 && column < a.vocab;
  team.each([&](int thread) {
    if (thread != 0) return;
    parts[row] = {own.max, own.sum, has_target ? a.logits[row * a.row_stride + column] : 0.0F};
  });
}

}  // namespace sluice::cuda
