// How TierStore reaches the device: copies, and the bounce buffer for what the host adds to. Where
// the device is the host there is no bounce buffer and nothing is copied twice.
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
  // `bounce`: the bounce buffer; empty where the device is the host and where no program adds on
  // the host.
  TierCopies(std::shared_ptr<DeviceCopies> copies, std::span<std::byte> bounce)
      : copies_(std::move(copies)), bounce_(bounce) {}

  [[nodiscard]] DeviceCopies& device() const { return *copies_; }

  // Hands `elems` fp32 values on the device to use(values, first, n) as the host's memory, in
  // order, n of them from `first` on at a time, while the next ones are on their way. Blocks. One
  // thread at a time.
  using Use = std::function<void(const float* values, std::int64_t first, std::int64_t n)>;
  void bring(DevicePtr from, std::int64_t elems, const Use& use);

 private:
  const std::shared_ptr<DeviceCopies> copies_;
  const std::span<std::byte> bounce_;
};

}  // namespace sluice
