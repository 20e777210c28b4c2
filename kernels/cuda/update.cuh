// Updates for every optimizer, with the roundings of kernels/cpu: a table of spans is a kernel's
// argument, so one launch updates many parameters.
//
// An optimizer's arithmetic `Rule` has Constants, kMoments, and update(), which returns the new
// master weight and replaces the moments by their new values.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/device_types.cuh"
#include "kernels/cuda/step_clip.hpp"

namespace sluice::cuda {

inline constexpr int kUpdatesOfLaunch = 64;  // 3.5 KiB of the 4 KiB that arguments may take
// Elements that a thread block takes at a time, four a thread.
inline constexpr int kUpdateChunk = 4 * kThreads;

template <class Rule>
struct UpdatePart {
  float* master;
  float* moments[Rule::kMoments];
  const void* grad;
  void* weights_out;
  std::int64_t n;
  int first;      // of its chunks among those of the launch
  int constants;  // index into UpdateParts::constants
};

template <class Rule>
struct UpdateParts {
  UpdatePart<Rule> at[kUpdatesOfLaunch];
  typename Rule::Constants constants[2];
  const StepClip* clip;  // null: the constants have the factor of gradients
  int count;
  int sets;  // of constants
  int chunks;
};

inline constexpr int kFour = 4;

template <class T>
__device__ __forceinline__ void load_four(const T* from, float (&to)[kFour]) {
  Quad<T> raw;
  load_quad(from, &raw);
  for (int j = 0; j < kFour; ++j) to[j] = widen(raw.v[j]);
}

template <class T>
__device__ __forceinline__ void store_four(const float (&from)[kFour], T* to) {
  Quad<T> raw;
  for (int j = 0; j < kFour; ++j) narrow(from[j], &raw.v[j]);
  store_quad(raw, to);
}

template <class T>
__device__ __forceinline__ bool takes_four(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Quad<T>) == 0;
}

// A part's buffers in their types.
template <class Rule, class G, class W>
struct TypedPart {
  float* master;
  float* const (&moments)[Rule::kMoments];
  const G* grad;
  W* out;  // or null

  __device__ bool takes_four() const {
    bool all = cuda::takes_four(master) && cuda::takes_four(grad) && cuda::takes_four(out);
    for (const float* moment : moments) all = all && cuda::takes_four(moment);
    return all;
  }

  // As kernels/cpu/update/update_span.hpp: no master weight lies between two bf16 values.
  __device__ static float rounds_alike(float master) {
    if constexpr (std::is_same_v<W, Bf16>) {
      const std::uint32_t bits = bits_of(master);
      return from_bits(bits - ((bits & 0x1ffffU) == 0x8000U ? 1U : 0U));
    } else {
      return master;
    }
  }

  __device__ void update(std::int64_t i, const typename Rule::Constants& c) const {
    float of[Rule::kMoments];
    for (int k = 0; k < Rule::kMoments; ++k) of[k] = moments[k][i];
    const float p = rounds_alike(Rule::update(master[i], of, widen(grad[i]), c));
    for (int k = 0; k < Rule::kMoments; ++k) moments[k][i] = of[k];
    master[i] = p;
    if (out != nullptr) narrow(p, out + i);
  }

  // Elements [i, i + 4), all loads before the arithmetic.
  __device__ void update_four(std::int64_t i, const typename Rule::Constants& c) const {
    float p[kFour], g[kFour], of[Rule::kMoments][kFour];
    load_four(master + i, p);
    load_four(grad + i, g);
    for (int k = 0; k < Rule::kMoments; ++k) load_four(moments[k] + i, of[k]);
    for (int j = 0; j < kFour; ++j) {
      float one[Rule::kMoments];
      for (int k = 0; k < Rule::kMoments; ++k) one[k] = of[k][j];
      p[j] = rounds_alike(Rule::update(p[j], one, g[j], c));
      for (int k = 0; k < Rule::kMoments; ++k) of[k][j] = one[k];
    }
    for (int k = 0; k < Rule::kMoments; ++k) store_four(of[k], moments[k] + i);
    store_four(p, master + i);
    if (out != nullptr) store_four(p, out + i);
  }
};

template <class Rule, class G, class W>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ UpdateParts<Rule> parts) {
  if (parts.clip != nullptr && parts.clip->updates == 0) return;
  for (int chunk = static_cast<int>(blockIdx.x); chunk < parts.chunks;
       chunk += static_cast<int>(gridDim.x)) {
    const UpdatePart<Rule>& a = parts.at[row_of(parts.at, parts.count, chunk)];
    typename Rule::Constants c = parts.constants[a.constants];
    if (parts.clip != nullptr) c.grad_scale = parts.clip->grad_scale;
    const TypedPart<Rule, G, W> typed{a.master, a.moments, static_cast<const G*>(a.grad),
                                      static_cast<W*>(a.weights_out)};
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
}

// Collects spans and launches them when a kernel can take no more.
template <class Rule>
class UpdateLaunches {
 public:
  using Constants = typename Rule::Constants;
  UpdateLaunches(const StepClip* clip, StreamRef stream, const char* name)
      : clip_(clip), stream_(stream), name_(name) {}

  void add(const UpdateSpan& span, const Constants& constants) {
    check_argument(span.moments_dtype == DType::kFloat32,
                   "CUDA updates keep moments in fp32; offload.states_dtype is for moments on host "
                   "or NVMe");
    check_argument(span.master_out == nullptr, "CUDA updates change master weights in place");
    check_argument(span.remainders == nullptr, "CUDA updates read whole master weights");
    const bool alike = span.grad_dtype == grad_dtype_ && span.weights_dtype == weights_dtype_;
    int set = set_of(constants);
    if (!alike || set == kSets || parts_.count == kUpdatesOfLaunch) {
      launch();
      set = 0;
    }
    grad_dtype_ = span.grad_dtype;
    weights_dtype_ = span.weights_dtype;
    parts_.constants[set] = constants;
    parts_.sets = set < parts_.sets ? parts_.sets : set + 1;
    UpdatePart<Rule>& part = parts_.at[parts_.count++];
    part = {span.master, {}, span.grad, span.weights_out, span.n, parts_.chunks, set};
    for (int k = 0; k < Rule::kMoments; ++k) part.moments[k] = static_cast<float*>(span.moments[k]);
    parts_.chunks += static_cast<int>((span.n + kUpdateChunk - 1) / kUpdateChunk);
  }

  void launch() {
    if (parts_.count == 0) return;
    parts_.clip = clip_;
    const unsigned blocks = blocks_for(static_cast<std::int64_t>(parts_.chunks) * kThreads);
    with_device_dtype(grad_dtype_, [&](auto* grad) {
      with_device_dtype(weights_dtype_, [&](auto* out) {
        using G = std::remove_pointer_t<decltype(grad)>;
        using W = std::remove_pointer_t<decltype(out)>;
        update_kernel<Rule, G, W><<<blocks, kThreads, 0, native(stream_)>>>(parts_);
      });
    });
    check_launch(name_);
    parts_ = {};
  }

 private:
  static constexpr int kSets = 2;

  // The set of these values, a new one, or kSets.
  int set_of(const Constants& constants) const {
    int set = 0;
    while (set < parts_.sets &&
           std::memcmp(&parts_.constants[set], &constants, sizeof constants) != 0) {
      ++set;
    }
    return set;
  }

  UpdateParts<Rule> parts_{};
  DType grad_dtype_ = DType::kFloat32;
  DType weights_dtype_ = DType::kFloat32;
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
  UpdateLaunches<Rule> launches(clip, to.stream, to.name);
  for (int i = 0; i < count; ++i) {
    if (spans[i].n > 0) launches.add(spans[i], constants(spans[i]));
  }
  launches.launch();
}

}  // namespace sluice::cuda
