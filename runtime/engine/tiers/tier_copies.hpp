// TierStore's access to the device: copies, and the bounce buffer for gradients that the host adds.
// If the device is the host, no bounce buffer exists and no data is copied twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "offload/device_copies.hpp"

namespace sluice {

class TierCopies {
 public:
  // `bounce`: the bounce buffer; empty if the device is the host or no program adds on the host.
  TierCopies(std::shared_ptr<DeviceCopies> copies, std::span<std::byte> bounce)
      : copies_(std::move(copies)), bounce_(bounce) {}

  [[nodiscard]] DeviceCopies& device() const { return *copies_; }

  // Copies `elems` fp32 values from the device to the host in parts. Calls use(values, first, n)
  // for each part in order, while the next part is copied. Blocks. One thread at a time.
  using Use = std::function<void(const float* values, std::int64_t first, std::int64_t n)>;
  void bring(DevicePtr from, std::int64_t elems, const Use& use);

 private:
  const std::shared_ptr<DeviceCopies> copies_;
  const std::span<std::byte> bounce_;
};

}  // namespace sluice
