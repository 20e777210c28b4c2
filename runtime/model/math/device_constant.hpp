// A tensor that is computed once on the host and used on a unit's device: the host itself, the meta
// device of a dry run, or a GPU (copied at first use). Not thread-safe, as units.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/empty_tensor.hpp"

namespace sluice {

class DeviceConstant {
 public:
  DeviceConstant() = default;
  // REQUIRES: a host tensor that is not written any more.
  explicit DeviceConstant(at::Tensor host)
      : host_(std::move(host)),
        // Copied at once: a unit's memory profile counts all allocations of its run.
        meta_(empty_tensor(host_.sizes(), host_.scalar_type(), c10::DeviceType::Meta)) {}
  // For models of dry runs: only the meta device has the constant.
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
