// Where what a rank keeps off its device is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "offload/device_copies.hpp"
#include "offload/nvme_store.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {

// One array of a group, on the host or on NVMe.
struct TierArray {
  std::byte* host = nullptr;
  ExtentId extent;
  ExtentId second;  // of chunks that have two places
  DType dtype = DType::kFloat32;
  [[nodiscard]] bool on_disk() const { return extent.index >= 0; }
  [[nodiscard]] std::int64_t element_bytes() const { return size_of(dtype); }
};

// What of a group is off the device, and what of it on the device is copied from and to.
struct AwayGroup {
  std::int64_t there = 0;  // elements updated on the device: the states' arrays begin after them
  std::int64_t first_element = 0;  // of all the model's: that of the first owned one
  TierArray master, moment1, moment2;
  TierArray params;  // the master's where they are one
  bool params_here = false;
  std::vector<ShardSegment> segments;  // of the owned elements
  DevicePtr device_shard;              // parameters, where they are on the device
  DevicePtr device_grads;              // fp32, likewise
  // Elements off the device that have second places, and by chunk, whether that one is current.
  std::int64_t second_begin = 0;
  std::int64_t second_elems = 0;
  std::vector<char> in_second;
  // Of these, the elements that are updated before the norm is known.
  std::int64_t early_begin = 0;
  std::int64_t early_elems = 0;
  std::vector<TierArray> grads;  // by stream
  std::vector<double> block_sums;
};

}  // namespace sluice
