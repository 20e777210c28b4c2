// How TierStore reaches the device: copies, and the bounce buffer for what the host adds to. Where
// the device is the host there is no bounce buffer and nothing is copied twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "runtime/engine/tier_limits.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Whether a program has the host add reduced gradients to others, which a GPU's come to through the
// bounce buffer.
[[nodiscard]] bool adds_on_host(const Program& program);

// Whether copies to and from the device touch what has that tag on the host. `dtype`: the model's.
[[nodiscard]] bool is_copied(Tag tag, DType dtype);

class TierCopies {
 public:
  // The bounce buffer is counted as "bounce". Throws BudgetError.
  TierCopies(std::shared_ptr<DeviceCopies> copies, const TierOptions& options, HostPool& pool,
             std::span<const Program* const> programs);

  [[nodiscard]] DeviceCopies& device() const { return *copies_; }

  // Hands `elems` fp32 values on the device to use(values, first, n) as the host's memory, in
  // order, n of them from `first` on at a time, while the next ones are on their way. Blocks. One
  // thread at a time.
  using Use = std::function<void(const float* values, std::int64_t first, std::int64_t n)>;
  void bring(DevicePtr from, std::int64_t elems, const Use& use);

  // Where copies may still be under way, their memory is not to be given back.
  void leak_if_lost(std::span<HostBlock> blocks) noexcept;

 private:
  const std::shared_ptr<DeviceCopies> copies_;
  HostBlock bounce_;
};

}  // namespace sluice
