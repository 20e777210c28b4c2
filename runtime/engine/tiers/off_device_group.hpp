// A group of parameters as the operations between tiers see it: the rows of its arrays on the host
// and on NVMe, and the addresses of those arrays on the device that copies touch.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "offload/device_copies.hpp"
#include "zero/partition_plan.hpp"
#include "zero/shard_store.hpp"

namespace sluice {

// Row -1: the group has no such array off the device.
struct OffDeviceGroup {
  RowId params = -1;
  RowId master = -1;  // params, where fp32 parameters are their own master weights
  std::array<RowId, kMostMoments> moments{-1, -1};
  std::vector<RowId> grads;        // by stream
  std::int64_t on_device = 0;      // owned elements whose states are on the device: the first ones
  std::int64_t first_element = 0;  // of stochastic rounding: of the first owned element
  std::vector<ShardSegment> segments;  // of the owned elements
  DevicePtr device_shard;              // parameters, where they are on the device
  DevicePtr device_grads;              // fp32, likewise
};

}  // namespace sluice
