// A tensor computed once on the host and needed on the device where a unit runs: the host itself,
// the meta device of a dry run, or a GPU (copied there at first use). Not thread-safe, as units.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/empty_tensor.hpp"

namespace sluice {

class DeviceConstant {
 public:
  DeviceConstant() = default;
  // REQUIRES: a host tensor that nobody writes to any more.
  explicit DeviceConstant(at::Tensor host)
      : host_(std::move(host)),
        // Made at once: a unit's memory profile counts what it allocates while it runs.
        meta_(empty_tensor(host_.sizes(), host_.scalar_type(), c10::DeviceType::Meta)) {}
  // Of a model for dry runs: the meta device has it, no other.
  static DeviceConstant dry(at::IntArrayRef sizes, c10::ScalarType type) {
    DeviceConstant constant;
    constant.meta_ = empty_tensor(sizes, type, c10::DeviceType::Meta);
    return constant;
  }

  [[nodiscard]] const at::Tensor& on(const at::Device& device) const {
    if (device.is_cpu()) return host_;
    if (device.is_meta()) return meta_;
    if (!device_.defined() || device_.device() != device) device_ = host_.to(device);
    return device_;
  }

 private:
  at::Tensor host_;
  at::Tensor meta_;
  mutable at::Tensor device_;
};

}  // namespace sluice
