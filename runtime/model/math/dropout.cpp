#include "runtime/model/math/dropout.hpp"

#include <ATen/ops/empty.h>

#include <array>

#include "kernels/cpu/philox.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

at::Tensor keep_mask(const at::Tensor& x, double p, const UnitCall& call, std::uint64_t site) {
  if (takes_gpu_path(x)) {
    return device::keep_mask(
        x, {.p = p, .call = call, .site = site, .per_sample = x.numel() / x.size(0)});
  }
  const auto options = at::TensorOptions().dtype(c10::ScalarType::Byte).device(x.device());
  at::Tensor keep = at::empty(x.sizes(), options);
  if (!x.is_meta()) {
    auto* bytes = host_data<std::uint8_t>(keep);
    const std::int64_t per_sample = x.numel() / x.size(0);
    for (std::int64_t b = 0; b < x.size(0); ++b) {
      const std::array<std::uint64_t, 3> key{static_cast<std::uint64_t>(call.step),
                                             static_cast<std::uint64_t>(call.first_sample + b),
                                             site};
      fill_dropout_mask(std::span(bytes + b * per_sample, static_cast<std::size_t>(per_sample)),
                        call.seed, hash_stream(key), 0, p);
    }
  }
  return keep.to(x.options());
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const UnitCall& call, std::uint64_t site) {
  if (!call.training || p <= 0) return x;
  // Two products rather than one by mask / (1 - p): that quotient is not exact in 16 bits.
  return x.mul(keep_mask(x, p, call, site)).mul(1.0 / (1.0 - p));
}

}  // namespace sluice
