// A group of parameters for the operations between tiers: rows of its arrays on the host and on
// NVMe, and addresses of its arrays on the device that copies touch.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "offload/device_copies.hpp"
#include "zero/partition_plan.hpp"
#include "zero/shard_store.hpp"

namespace sluice {

// Row -1: the group has no such array off-device.
struct OffDeviceGroup {
  RowId params = -1;
  RowId master = -1;      // params, if fp32 parameters are their own master weights
  RowId remainders = -1;  // in place of master: params are the high part of master weights
  std::array<RowId, kMostMoments> moments{-1, -1};
  std::vector<RowId> grads;            // by stream
  std::int64_t on_device = 0;          // number of first owned elements with states on the device
  std::int64_t first_element = 0;      // GroupState::first_element
  std::vector<ShardSegment> segments;  // of the owned elements
  DevicePtr device_shard;              // parameters, if on the device
  DevicePtr device_grads;              // fp32, if on the device

  // The row that updates write for master weights: theirs, or that of their remainders.
  [[nodiscard]] RowId master_or_remainders() const { return remainders < 0 ? master : remainders; }
};

}  // namespace sluice
