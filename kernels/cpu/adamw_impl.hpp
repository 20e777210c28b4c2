// AdamW over one range, as a template over a back end S (simd_types.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/philox_impl.hpp"

namespace sluice::isa {

// From this size on, weights are larger than a core's caches. Stores that bypass the caches do not
// read the lines first. States gain nothing from such stores, because their lines are read anyway.
inline constexpr std::int64_t kStreamElements = 1 << 20;

// Distance between prefetches and loads: 2 KiB of an fp32 buffer. Needed because the CPU's own
// prefetchers restart at every 4 KiB page of every buffer. On an EPYC, a quarter and twice this
// distance were slower.
inline constexpr std::int64_t kPrefetchElements = 512;

// Elements whose random words are made at once, while the prefetched lines arrive.
inline constexpr std::int64_t kRoundingChunk = 512;

// Rounding words of the elements [first, first + n), n <= kRoundingChunk. Element e uses word
// e / 16 % 4 of block e / 64 * 16 + e % 16, so 16 lanes load the words of 16 blocks without a
// shuffle.
template <class S>
class RoundingWords {
 public:
  const std::uint32_t* fill(const AdamWArgs& a, std::uint64_t first, std::int64_t n) {
    const std::uint64_t offset = first % kBatch;
    const PhiloxRange key{
        .seed = a.rounding_seed, .stream = static_cast<std::uint64_t>(a.step), .first = 0, .n = 0};
    const std::int64_t batches = (static_cast<std::int64_t>(offset) + n + kBatch - 1) / kBatch;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      philox_batch<S>(words_[batch], key,
                      (first / kBatch + static_cast<std::uint64_t>(batch)) * kBatchBlocks);
    }
    return reinterpret_cast<const std::uint32_t*>(words_) + offset;
  }

 private:
  alignas(64) std::uint32_t words_[kRoundingChunk / kBatch + 1][4][kBatchBlocks];
};

// Updates 16 elements and returns the new weights. `words` is null for moments in fp32.
template <class S, class M, class G>
auto adamw_lanes(float* master, M* m, M* v, const G* grad, const AdamWConstants& c,
                 const std::uint32_t* words) {
  const auto g = S::mul(S::load(grad), S::set1(c.grad_scale));
  const auto new_m = S::fma(S::set1(c.beta1), S::load(m), S::mul(S::set1(c.one_minus_beta1), g));
  const auto new_v =
      S::fma(S::set1(c.beta2), S::load(v), S::mul(S::mul(S::set1(c.one_minus_beta2), g), g));
  const auto denominator = S::fma(S::sqrt(new_v), S::set1(c.inv_sqrt_bias2), S::set1(c.eps));
  const auto decayed = S::mul(S::load(master), S::set1(c.decay));
  const auto p = S::fma(S::set1(c.minus_step_size), S::div(new_m, denominator), decayed);
  if constexpr (std::is_same_v<M, float>) {
    S::store(m, new_m);
    S::store(v, new_v);
  } else {
    S::template store_stochastic<0>(m, new_m, words);
    S::template store_stochastic<16>(v, new_v, words);
  }
  S::store(master, p);
  return p;
}

template <class S, class M, class G, class W>
struct AdamWRange {
  const AdamWArgs& a;
  const AdamWConstants& c;
  const G* grad;
  M* m;
  M* v;
  W* out;
  bool stream;

  AdamWRange(const AdamWArgs& args, const AdamWConstants& constants)
      : a(args),
        c(constants),
        grad(static_cast<const G*>(args.grad)),
        m(static_cast<M*>(args.m)),
        v(static_cast<M*>(args.v)),
        out(static_cast<W*>(args.weights_out)),
        stream(out != nullptr && args.n >= kStreamElements &&
               reinterpret_cast<std::uintptr_t>(out) % sizeof(W) == 0) {}

  // Elements from i to the next address at a multiple of 16 elements: of the streamed weights, or
  // of the master weights if nothing is streamed.
  std::int64_t until_aligned(std::int64_t i) const {
    const auto address = stream
                             ? reinterpret_cast<std::uintptr_t>(out + i) / sizeof(W)
                             : reinterpret_cast<std::uintptr_t>(a.master + i) / sizeof(*a.master);
    return static_cast<std::int64_t>((kLanes - address % kLanes) % kLanes);
  }

  void prefetch(std::int64_t i) const {
    __builtin_prefetch(a.master + i);
    __builtin_prefetch(m + i);
    __builtin_prefetch(v + i);
    __builtin_prefetch(grad + i);
  }

  // Updates fewer than 16 elements. Not inlined: two copies in each of 18 instances would cost a
  // second of compile time.
  [[gnu::noinline]] void part(std::int64_t i, std::int64_t n, const std::uint32_t* words) const {
    Tail<S, float> master(a.master + i, n);
    Tail<S, M> some_m(m + i, n);
    Tail<S, M> some_v(v + i, n);
    const Tail<S, G> some_grad(grad + i, n);
    Tail<S, std::uint32_t> some_words;
    if (words != nullptr) some_words = Tail<S, std::uint32_t>(words, n);
    Tail<S, W> result;
    S::store(result.v, adamw_lanes<S>(master.v, some_m.v, some_v.v, some_grad.v, c, some_words.v));
    master.copy_to(a.master + i, n);
    some_m.copy_to(m + i, n);
    some_v.copy_to(v + i, n);
    if (out != nullptr) result.copy_to(out + i, n);
  }

  // Updates elements [begin, end); words[0] belongs to `begin`.
  void run(std::int64_t begin, std::int64_t end, const std::uint32_t* words) const {
    std::int64_t i = begin;
    const auto words_of = [&] { return words == nullptr ? nullptr : words + (i - begin); };
    const std::int64_t head = until_aligned(i);
    if (head > 0 && head < end - i) {
      part(i, head, words_of());
      i += head;
    }
    for (; i + kLanes <= end; i += kLanes) {
      prefetch(i + kPrefetchElements);
      const auto p = adamw_lanes<S>(a.master + i, m + i, v + i, grad + i, c, words_of());
      if (stream) {
        S::stream(out + i, p);
      } else if (out != nullptr) {
        S::store(out + i, p);
      }
    }
    if (i < end) part(i, end - i, words_of());
  }
};

template <class S, class M, class G, class W>
void adamw_typed(const AdamWArgs& a, const AdamWConstants& c, std::int64_t begin, std::int64_t n) {
  const AdamWRange<S, M, G, W> range(a, c);
  const std::int64_t end = begin + n;
  if constexpr (std::is_same_v<M, float>) {
    range.run(begin, end, nullptr);
  } else {
    RoundingWords<S> words;
    for (std::int64_t i = begin; i < end;) {
      // The first chunk ends at an aligned element, so all later chunks begin aligned.
      const std::int64_t head = range.until_aligned(i);
      const std::int64_t whole = i + (head == 0 ? kRoundingChunk : kRoundingChunk - kLanes + head);
      const std::int64_t next = whole < end ? whole : end;
      const auto first = static_cast<std::uint64_t>(a.rounding_element + i);
      range.run(i, next, words.fill(a, first, next - i));
      i = next;
    }
  }
  if (range.stream) S::fence();
}

template <class S>
void adamw(const AdamWArgs& a, const AdamWConstants& c, std::int64_t begin, std::int64_t n) {
  with_dtype<S>(a.grad_dtype, [&](auto* grad) {
    with_dtype<S>(a.weights_dtype, [&](auto* out) {
      using G = std::remove_pointer_t<decltype(grad)>;
      using W = std::remove_pointer_t<decltype(out)>;
      if (a.moments_dtype == DType::kFloat32) {
        adamw_typed<S, float, G, W>(a, c, begin, n);
      } else {
        adamw_typed<S, Bf16, G, W>(a, c, begin, n);
      }
    });
  });
}

}  // namespace sluice::isa
