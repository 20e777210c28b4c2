// An update over one range, for a back end S (simd_types.hpp) and an optimizer's arithmetic `Rule`
// on 16 lanes (AdamWLanes<S>, ...): Constants, kMoments, and update(), which returns the new master
// weights and replaces the moments by their new values.
//
// Instances exist for each type of moments and of weights. The type of the gradient is a predicted
// branch in the loop: as a third parameter it would triple the number of instances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/isa/elementwise_impl.hpp"
#include "kernels/cpu/isa/philox_impl.hpp"
#include "kernels/cpu/update/update_span.hpp"

namespace sluice::isa {

// From this size on, weights are larger than a core's caches. Stores that bypass the caches do not
// read the lines first. States gain nothing from such stores in place, because their lines are read
// anyway.
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
  const std::uint32_t* fill(const UpdateSpan& a, std::uint64_t first, std::int64_t n) {
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

template <class S, class Rule, class M, class W>
struct UpdateRange {
  using F = typename S::F;
  using Constants = typename Rule::Constants;
  static constexpr std::size_t kMoments = Rule::kMoments;

  const UpdateSpan& a;
  const Constants& c;
  M* moments[kMoments];
  float* new_master;
  std::uint16_t* new_low;
  M* new_moments[kMoments];
  const W* weights;
  W* out;
  bool stream;
  bool stream_states;

  UpdateRange(const UpdateSpan& span, const Constants& constants)
      : a(span),
        c(constants),
        new_master(span.master_out != nullptr ? span.master_out : span.master),
        new_low(span.remainders_out != nullptr ? span.remainders_out : span.remainders),
        weights(static_cast<const W*>(span.weights)),
        out(static_cast<W*>(span.weights_out)),
        stream(out != nullptr && out != weights && span.n >= kStreamElements &&
               reinterpret_cast<std::uintptr_t>(out) % sizeof(W) == 0),
        stream_states(goes_elsewhere() && span.n >= kStreamElements && std::is_same_v<M, float> &&
                      (is_split() ? is_aligned(new_low) : is_aligned(new_master))) {
    for (std::size_t k = 0; k < kMoments; ++k) {
      moments[k] = static_cast<M*>(span.moments[k]);
      new_moments[k] = goes_elsewhere() ? static_cast<M*>(span.moments_out[k]) : moments[k];
      stream_states = stream_states && is_aligned(new_moments[k]);
    }
  }

  bool goes_elsewhere() const { return a.master_out != nullptr || a.remainders_out != nullptr; }
  bool is_split() const { return std::is_same_v<W, Bf16> && a.remainders != nullptr; }

  // Elements to the next address at a multiple of 16 elements.
  template <class T>
  static std::int64_t until_lanes(const T* from) {
    const auto address = reinterpret_cast<std::uintptr_t>(from) / sizeof(T);
    return static_cast<std::int64_t>((kLanes - address % kLanes) % kLanes);
  }
  // Elements from i to the next multiple of 16 elements: in the output weights if these are
  // streamed or split with remainders, else in the master weights.
  std::int64_t until_aligned(std::int64_t i) const {
    return stream || is_split() ? until_lanes(out + i) : until_lanes(a.master + i);
  }
  // True if `to` reaches multiples of 16 elements at the same indices as the buffer that
  // until_aligned() measures.
  template <class T>
  bool is_aligned(const T* to) const {
    return reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0 &&
           until_lanes(to) == until_aligned(0);
  }

  static F rounds_alike(F master) {
    if constexpr (std::is_same_v<W, Bf16>) return S::leave_ties(master);
    return master;
  }

  F load_master(std::int64_t i) const {
    if constexpr (std::is_same_v<W, Bf16>) {
      if (is_split()) return S::load_split(weights + i, a.remainders + i);
    }
    return S::load(a.master + i);
  }

  // load(pointer to element i of the gradient, of its type).
  template <class Load>
  F gradient(std::int64_t i, const Load& load) const {
    if (a.grad_dtype == DType::kFloat32) return load(static_cast<const float*>(a.grad) + i);
    if (a.grad_dtype == DType::kBFloat16) return load(static_cast<const Bf16*>(a.grad) + i);
    return load(static_cast<const Half*>(a.grad) + i);
  }

  // Inlined early: GCC 12 deletes calls of a function that does nothing but prefetch.
  [[gnu::always_inline]] void prefetch(std::int64_t i) const {
    if (is_split()) {
      __builtin_prefetch(weights + i);
      __builtin_prefetch(a.remainders + i);
    } else {
      __builtin_prefetch(a.master + i);
    }
    for (M* const moment : moments) __builtin_prefetch(moment + i);
    __builtin_prefetch(static_cast<const char*>(a.grad) +
                       i * (a.grad_dtype == DType::kFloat32 ? 4 : 2));
  }

  template <std::size_t K>
  static void store_moment(M* to, F value, const std::uint32_t* words) {
    if constexpr (std::is_same_v<M, float>) {
      S::store(to, value);
    } else {
      S::template store_stochastic<16 * int{K}>(to, value, words);
    }
  }

  // Loads 16 elements of the moments and returns the new master weights; replaces `values` by the
  // new moments.
  static F lanes(F master, M* const (&at)[kMoments], F grad, const Constants& c,
                 F (&values)[kMoments]) {
    for (std::size_t k = 0; k < kMoments; ++k) values[k] = S::load(at[k]);
    return rounds_alike(Rule::update(master, values, grad, c));
  }

  // `words` is null for moments in fp32.
  static void store_moments(M* const (&to)[kMoments], const F (&values)[kMoments],
                            const std::uint32_t* words) {
    store_moment<0>(to[0], values[0], words);
    if constexpr (kMoments > 1) store_moment<1>(to[1], values[1], words);
  }

  // Weights, and beside them master weights or remainders.
  void store_weights(std::int64_t i, F p) const {
    if (is_split()) {
      stream_states ? S::stream_low(new_low + i, p) : S::store_low(new_low + i, p);
    } else {
      stream_states ? S::stream(new_master + i, p) : S::store(new_master + i, p);
    }
    if (stream) {
      S::stream(out + i, p);
    } else if (out != nullptr) {
      S::store(out + i, p);
    }
  }

  void stream_moments(std::int64_t i, const F (&values)[kMoments]) const {
    if constexpr (std::is_same_v<M, float>) {
      for (std::size_t k = 0; k < kMoments; ++k) S::stream(new_moments[k] + i, values[k]);
    }
  }

  // Updates fewer than 16 elements. Not inlined: a second copy in each instance costs compile time.
  [[gnu::noinline]] void part(std::int64_t i, std::int64_t n, const std::uint32_t* words) const {
    Tail<S, float> master;
    Tail<S, std::uint16_t> low;
    Tail<S, W> result;
    F p;
    if constexpr (std::is_same_v<W, Bf16>) {
      if (is_split()) {
        low = Tail<S, std::uint16_t>(a.remainders + i, n);
        p = S::load_split(Tail<S, W>(weights + i, n).v, low.v);
      }
    }
    if (!is_split()) {
      master = Tail<S, float>(a.master + i, n);
      p = S::load(master.v);
    }
    Tail<S, M> some[kMoments];
    M* at[kMoments];
    for (std::size_t k = 0; k < kMoments; ++k) {
      some[k] = Tail<S, M>(moments[k] + i, n);
      at[k] = some[k].v;
    }
    const F grad = gradient(i, [n](const auto* from) {
      return S::load(
          Tail<S, std::remove_const_t<std::remove_pointer_t<decltype(from)>>>(from, n).v);
    });
    Tail<S, std::uint32_t> some_words;
    if (words != nullptr) some_words = Tail<S, std::uint32_t>(words, n);
    F values[kMoments];
    p = lanes(p, at, grad, c, values);
    store_moments(at, values, some_words.v);
    S::store(result.v, p);
    if (is_split()) {
      S::store_low(low.v, p);
      low.copy_to(new_low + i, n);
    } else {
      S::store(master.v, p);
      master.copy_to(new_master + i, n);
    }
    for (std::size_t k = 0; k < kMoments; ++k) some[k].copy_to(new_moments[k] + i, n);
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
      M* at[kMoments];
      for (std::size_t k = 0; k < kMoments; ++k) at[k] = moments[k] + i;
      const F grad = gradient(i, [](const auto* from) { return S::load(from); });
      F values[kMoments];
      const F p = lanes(load_master(i), at, grad, c, values);
      if (stream_states) {
        stream_moments(i, values);
      } else {
        for (std::size_t k = 0; k < kMoments; ++k) at[k] = new_moments[k] + i;
        store_moments(at, values, words_of());
      }
      store_weights(i, p);
    }
    if (i < end) part(i, end - i, words_of());
  }
};

template <class S, class Rule, class M, class W>
void update_typed(const UpdateSpan& a, const typename Rule::Constants& c, std::int64_t begin,
                  std::int64_t n) {
  const UpdateRange<S, Rule, M, W> range(a, c);
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
  if (range.stream || range.stream_states) S::fence();
}

template <class S, class Rule>
void update(const UpdateSpan& a, const typename Rule::Constants& c, std::int64_t begin,
            std::int64_t n) {
  with_dtype<S>(a.weights_dtype, [&](auto* out) {
    using W = std::remove_pointer_t<decltype(out)>;
    if (a.moments_dtype == DType::kFloat32) {
      update_typed<S, Rule, float, W>(a, c, begin, n);
    } else {
      update_typed<S, Rule, Bf16, W>(a, c, begin, n);
    }
  });
}

// The type of update<S, Rule>, for explicit instances.
template <class Rule>
using UpdateFunction = void(const UpdateSpan&, const typename Rule::Constants&, std::int64_t,
                            std::int64_t);

}  // namespace sluice::isa
