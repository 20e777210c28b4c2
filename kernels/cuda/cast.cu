#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {
namespace {

template <class Out, class In>
__global__ void convert_kernel(Out* out, const In* in, std::int64_t n) {
  for (std::int64_t i = first_index(); i < n; i += index_stride()) narrow(widen(in[i]), out + i);
}

template <class In>
__global__ void add_kernel(float* acc, const In* x, std::int64_t n) {
  for (std::int64_t i = first_index(); i < n; i += index_stride()) {
    acc[i] = __fadd_rn(acc[i], widen(x[i]));
  }
}

__global__ void scale_kernel(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = first_index(); i < n; i += index_stride()) x[i] = __fmul_rn(x[i], factor);
}

}  // namespace

void launch_convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n,
                    StreamRef stream) {
  if (n <= 0 || (dst == src && dst_dtype == src_dtype)) return;
  with_device_dtype(dst_dtype, [&](auto* out) {
    with_device_dtype(src_dtype, [&](auto* in) {
      using Out = std::remove_pointer_t<decltype(out)>;
      using In = std::remove_pointer_t<decltype(in)>;
      convert_kernel<<<blocks_for(n), kThreads, 0, native(stream)>>>(
          static_cast<Out*>(dst), static_cast<const In*>(src), n);
    });
  });
  check_launch("convert");
}

void launch_add_to(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate,
                   StreamRef stream) {
  if (!accumulate) return launch_convert(acc, DType::kFloat32, x, dtype, n, stream);
  if (n <= 0) return;
  with_device_dtype(dtype, [&](auto* in) {
    using In = std::remove_pointer_t<decltype(in)>;
    add_kernel<<<blocks_for(n), kThreads, 0, native(stream)>>>(acc, static_cast<const In*>(x), n);
  });
  check_launch("add_to");
}

void launch_scale(float* x, std::int64_t n, float factor, StreamRef stream) {
  if (n <= 0) return;
  scale_kernel<<<blocks_for(n), kThreads, 0, native(stream)>>>(x, n, factor);
  check_launch("scale");
}

}  // namespace sluice::cuda
