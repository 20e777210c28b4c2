// Updates for every optimizer, with the roundings of kernels/cpu: a table of spans is a kernel's
// argument, so one launch updates many parameters.
//
// An optimizer's arithmetic `Rule` has Constants, kMoments, and update(), which returns the new
// master weight and replaces the moments by their new values. Moments are fp32 or bf16.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cpu/philox_rounds.hpp"
#include "kernels/cuda/device_types.cuh"
#include "kernels/cuda/master_weights.cuh"
#include "kernels/cuda/step_clip.hpp"

namespace sluice::cuda {

// Elements that a thread block takes at a time, four a thread.
inline constexpr int kUpdateChunk = kFour * kThreads;
// Elements whose moments are rounded by 16 blocks of Philox (kernels/cpu/update/update_span.hpp).
// A thread takes four of them, 16 apart: those of one block.
inline constexpr int kRounded = 64;
inline constexpr int kRoundedApart = kRounded / kFour;

// The number of a part's first element for stochastic rounding, where moments are rounded.
template <class M>
struct RoundedPart {
  std::int64_t element;
  [[nodiscard]] SLUICE_HOST_DEVICE std::int64_t before() const { return element % kRounded; }
};
template <>
struct RoundedPart<float> {
  [[nodiscard]] SLUICE_HOST_DEVICE std::int64_t before() const { return 0; }
};

template <class Rule, class M>
struct UpdatePart : RoundedPart<M> {
  void* master;  // master weights, or their remainders
  M* moments[Rule::kMoments];
  const void* grad;
  void* weights_out;
  std::int64_t n;
  int first;      // of its chunks among those of the launch
  int constants;  // index into UpdateParts::constants
};

template <class Rule, class M>
struct UpdateParts {
  // So that they and the numbers beside them fit. AdamW: 64 parts with moments in fp32.
  static constexpr int kMost = 3584 / static_cast<int>(sizeof(UpdatePart<Rule, M>));

  UpdatePart<Rule, M> at[std::size_t{kMost}];
  typename Rule::Constants constants[2];
  const StepClip* clip;  // null: the constants have the factor of gradients
  std::uint64_t seed;    // of stochastic rounding
  std::uint64_t step;
  int count;
  int sets;  // of constants
  int chunks;
};
constexpr std::size_t kMostArgumentBytes = 4096;  // of a kernel

// `x` in bf16: adds random bits to the 16 bits that bf16 drops, and truncates. Infinities stay.
__device__ __forceinline__ Bf16 narrow_stochastic(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = (nan ? bits | 0x400000U : bits + (random & 0xffffU)) >> 16;
  const auto high = static_cast<std::uint16_t>(rounded);
  Bf16 narrow;
  memcpy(static_cast<void*>(&narrow), &high, sizeof high);
  return narrow;
}

// A part's buffers in their types.
template <class Rule, class M, class G, class Master>
struct TypedPart {
  Master master;
  M* const (&moments)[Rule::kMoments];
  const G* grad;

  __device__ bool takes_four() const {
    bool all = master.takes_four() && cuda::takes_four(grad);
    for (const M* moment : moments) all = all && cuda::takes_four(moment);
    return all;
  }

  __device__ void update(std::int64_t i, const typename Rule::Constants& c) const {
    float of[Rule::kMoments];
    for (int k = 0; k < Rule::kMoments; ++k) of[k] = moments[k][i];
    const float p = Master::rounds_alike(Rule::update(master.load(i), of, widen(grad[i]), c));
    for (int k = 0; k < Rule::kMoments; ++k) moments[k][i] = of[k];
    master.store(i, p);
  }

  // Elements [i, i + 4), all loads before the arithmetic.
  __device__ void update_four(std::int64_t i, const typename Rule::Constants& c) const {
    float p[kFour], g[kFour], of[Rule::kMoments][kFour];
    master.load(i, p);
    load_four(grad + i, g);
    for (int k = 0; k < Rule::kMoments; ++k) load_four(moments[k] + i, of[k]);
    for (int j = 0; j < kFour; ++j) {
      float one[Rule::kMoments];
      for (int k = 0; k < Rule::kMoments; ++k) one[k] = of[k][j];
      p[j] = Master::rounds_alike(Rule::update(p[j], one, g[j], c));
      for (int k = 0; k < Rule::kMoments; ++k) of[k][j] = one[k];
    }
    for (int k = 0; k < Rule::kMoments; ++k) store_four(of[k], moments[k] + i);
    master.store(i, p);
  }

  // Those of the elements i, i + 16, i + 32, i + 48 that are in [0, n), all loads before the
  // arithmetic. words[j]: 16 random bits for each moment of the j-th.
  __device__ void update_apart(std::int64_t i, std::int64_t n, const std::uint32_t (&words)[kFour],
                               const typename Rule::Constants& c) const {
    float p[kFour], g[kFour], of[kFour][Rule::kMoments];
    bool has[kFour];
    for (int j = 0; j < kFour; ++j) {
      const std::int64_t at = i + j * kRoundedApart;
      has[j] = at >= 0 && at < n;
      if (!has[j]) continue;
      p[j] = master.load(at);
      g[j] = widen(grad[at]);
      for (int k = 0; k < Rule::kMoments; ++k) of[j][k] = widen(moments[k][at]);
    }
    for (int j = 0; j < kFour; ++j) {
      const std::int64_t at = i + j * kRoundedApart;
      if (!has[j]) continue;
      p[j] = Master::rounds_alike(Rule::update(p[j], of[j], g[j], c));
      for (int k = 0; k < Rule::kMoments; ++k) {
        moments[k][at] = narrow_stochastic(of[j][k], words[j] >> (16 * k));
      }
      master.store(at, p[j]);
    }
  }
};

struct RoundingTag;

// Four elements of the part, whose moments are rounded stochastically.
template <class Rule, class Typed>
__device__ __forceinline__ void update_rounded(const Typed& typed,
                                               const UpdateParts<Rule, Bf16>& parts,
                                               const UpdatePart<Rule, Bf16>& a, int chunk,
                                               const typename Rule::Constants& c) {
  const auto thread = static_cast<int>(threadIdx.x);
  // From the first element that shares a run of 64 numbers with the part's first.
  const std::int64_t run = static_cast<std::int64_t>(chunk - a.first) * (kUpdateChunk / kRounded) +
                           thread / kRoundedApart;
  const int lane = thread % kRoundedApart;
  const auto block =
      static_cast<std::uint64_t>((a.element / kRounded + run) * kRoundedApart + lane);
  std::uint32_t words[kFour] = {
      static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
      static_cast<std::uint32_t>(parts.step), static_cast<std::uint32_t>(parts.step >> 32)};
  isa::philox_rounds<RoundingTag>(words[0], words[1], words[2], words[3],
                                  static_cast<std::uint32_t>(parts.seed),
                                  static_cast<std::uint32_t>(parts.seed >> 32));
  typed.update_apart(run * kRounded + lane - a.before(), a.n, words, c);
}

// Four neighbours of the part, whose moments are in fp32.
template <class Rule, class Typed>
__device__ __forceinline__ void update_quad(const Typed& typed, const UpdatePart<Rule, float>& a,
                                            int chunk, const typename Rule::Constants& c) {
  const std::int64_t begin = static_cast<std::int64_t>(chunk - a.first) * kUpdateChunk;
  const std::int64_t end = begin + kUpdateChunk < a.n ? begin + kUpdateChunk : a.n;
  const std::int64_t own = begin + kFour * static_cast<std::int64_t>(threadIdx.x);
  if (own + kFour <= end && typed.takes_four()) {
    typed.update_four(own, c);
  } else {
    const std::int64_t last = own + kFour < end ? own + kFour : end;
    // Unrolled, the rare path changes the code of the other, which an H100 then runs more slowly.
#pragma unroll 1
    for (std::int64_t i = own; i < last; ++i) typed.update(i, c);
  }
}

template <class Rule, class M, class G, class Master>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ UpdateParts<Rule, M> parts) {
  if (parts.clip != nullptr && parts.clip->updates == 0) return;
  for (int chunk = static_cast<int>(blockIdx.x); chunk < parts.chunks;
       chunk += static_cast<int>(gridDim.x)) {
    const UpdatePart<Rule, M>& a = parts.at[row_of(parts.at, parts.count, chunk)];
    typename Rule::Constants c = parts.constants[a.constants];
    if (parts.clip != nullptr) c.grad_scale = parts.clip->grad_scale;
    const TypedPart<Rule, M, G, Master> typed{Master(a.master, a.weights_out), a.moments,
                                              static_cast<const G*>(a.grad)};
    if constexpr (std::is_same_v<M, float>) {
      update_quad<Rule>(typed, a, chunk, c);
    } else {
      update_rounded<Rule>(typed, parts, a, chunk, c);
    }
  }
}

// Collects spans with moments in M, and launches them when a kernel can take no more.
template <class Rule, class M>
class UpdateLaunches {
 public:
  using Constants = typename Rule::Constants;
  UpdateLaunches(const StepClip* clip, StreamRef stream, const char* name)
      : clip_(clip), stream_(stream), name_(name) {}

  void add(const UpdateSpan& span, const Constants& constants) {
    check_argument(span.master_out == nullptr, "CUDA updates change master weights in place");
    const bool splits = span.remainders != nullptr;
    check_argument(
        !splits || (span.weights_out != nullptr && span.weights == span.weights_out &&
                    span.remainders_out == nullptr && span.weights_dtype == DType::kBFloat16),
        "CUDA updates change bf16 weights and remainders in place");
    const bool alike = span.grad_dtype == grad_dtype_ && span.weights_dtype == weights_dtype_ &&
                       splits == splits_ && span.rounding_seed == parts_.seed &&
                       static_cast<std::uint64_t>(span.step) == parts_.step;
    int set = set_of(constants);
    if (!alike || set == kSets || parts_.count == UpdateParts<Rule, M>::kMost) {
      launch();
      set = 0;
    }
    grad_dtype_ = span.grad_dtype;
    weights_dtype_ = span.weights_dtype;
    splits_ = splits;
    parts_.seed = span.rounding_seed;
    parts_.step = static_cast<std::uint64_t>(span.step);
    parts_.constants[set] = constants;
    parts_.sets = set < parts_.sets ? parts_.sets : set + 1;
    UpdatePart<Rule, M>& part = parts_.at[parts_.count++];
    if constexpr (std::is_same_v<M, Bf16>) part.element = span.rounding_element;
    part.master = splits ? static_cast<void*>(span.remainders) : span.master;
    for (int k = 0; k < Rule::kMoments; ++k) part.moments[k] = static_cast<M*>(span.moments[k]);
    part.grad = span.grad;
    part.weights_out = span.weights_out;
    part.n = span.n;
    part.first = parts_.chunks;
    part.constants = set;
    parts_.chunks += static_cast<int>((part.before() + span.n + kUpdateChunk - 1) / kUpdateChunk);
  }

  void launch() {
    if (parts_.count == 0) return;
    parts_.clip = clip_;
    if constexpr (std::is_same_v<M, float>) {
      with_device_dtype(grad_dtype_,
                        [&](auto* grad) { launch<std::remove_pointer_t<decltype(grad)>>(); });
    } else if (grad_dtype_ == DType::kBFloat16) {
      launch<Bf16>();
    } else {
      check_argument(grad_dtype_ == DType::kFloat32,
                     "CUDA updates of moments in bf16 read gradients in fp32 or bf16");
      launch<float>();
    }
    check_launch(name_);
    parts_ = {};
  }

 private:
  static constexpr int kSets = 2;

  template <class G>
  void launch() {
    if (splits_) return launch<G, SplitMaster>();
    with_device_dtype(weights_dtype_, [&](auto* out) {
      launch<G, WholeMaster<std::remove_pointer_t<decltype(out)>>>();
    });
  }

  template <class G, class Master>
  void launch() {
    static_assert(sizeof(UpdateParts<Rule, M>) <= kMostArgumentBytes);
    const unsigned blocks = blocks_for(static_cast<std::int64_t>(parts_.chunks) * kThreads);
    update_kernel<Rule, M, G, Master><<<blocks, kThreads, 0, native(stream_)>>>(parts_);
  }

  // The set of these values, a new one, or kSets.
  int set_of(const Constants& constants) const {
    int set = 0;
    while (set < parts_.sets &&
           std::memcmp(&parts_.constants[set], &constants, sizeof constants) != 0) {
      ++set;
    }
    return set;
  }

  UpdateParts<Rule, M> parts_{};
  DType grad_dtype_ = DType::kFloat32;
  DType weights_dtype_ = DType::kFloat32;
  bool splits_ = false;  // master weights are weights and remainders
  const StepClip* clip_;
  StreamRef stream_;
  const char* name_;
};

// Where the kernel is launched, and its name in messages.
struct UpdateLaunch {
  StreamRef stream;
  const char* name;
};

template <class Rule>
void launch_updates(const UpdateSpan* spans, int count,
                    typename Rule::Constants (*constants)(const UpdateSpan&), const StepClip* clip,
                    const UpdateLaunch& to) {
  UpdateLaunches<Rule, float> wide(clip, to.stream, to.name);
  UpdateLaunches<Rule, Bf16> narrow(clip, to.stream, to.name);
  for (int i = 0; i < count; ++i) {
    const UpdateSpan& span = spans[i];
    if (span.n == 0) continue;
    if (span.moments_dtype == DType::kFloat32) {
      wide.add(span, constants(span));
    } else {
      check_argument(span.moments_dtype == DType::kBFloat16, "moments are in fp32 or bf16");
      narrow.add(span, constants(span));
    }
  }
  wide.launch();
  narrow.launch();
}

}  // namespace sluice::cuda
