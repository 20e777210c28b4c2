#include "runtime/engine/gpu_memory.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "base/index.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice {
namespace {

c10::DeviceAllocator& allocator_of(at::Device device) {
  return *c10::getDeviceAllocator(device.type());
}

const c10::CachingAllocator::Stat& reserved(const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return nth(stats.reserved_bytes, c10::CachingAllocator::StatType::AGGREGATE);
}

}  // namespace

std::int64_t reserved_peak_bytes(at::Device device) {
  return reserved(allocator_of(device).getDeviceStats(device.index())).peak;
}

void reset_reserved_peak(at::Device device) { allocator_of(device).resetPeakStats(device.index()); }

void return_reserved_memory(at::Device device) { allocator_of(device).emptyCache(); }

void reserve_bytes(at::Device device, std::int64_t bytes) {
  return_reserved_memory(device);
  const c10::CachingDeviceAllocator::DeviceStats stats =
      allocator_of(device).getDeviceStats(device.index());
  const std::int64_t missing = bytes - reserved(stats).current;
  if (missing <= 0) return;
  try {
    (void)empty_tensor({missing}, c10::ScalarType::Byte, device);
  } catch (const c10::OutOfMemoryError&) {  // NOLINT(bugprone-empty-catch)
    // No error yet: a step whose tensors do not fit names what it lacks.
  }
}

std::int64_t available_bytes(at::Device device) {
  c10::DeviceAllocator& allocator = allocator_of(device);
  const auto free = static_cast<std::int64_t>(allocator.getMemoryInfo(device.index()).first);
  return free + reserved(allocator.getDeviceStats(device.index())).current;
}

void limit_reserved_bytes(at::Device device, std::int64_t budget) {
  const auto total = static_cast<double>(allocator_of(device).getMemoryInfo(device.index()).second);
  const auto limit = reinterpret_cast<LimitGpuMemory*>(cuda_module_symbol(kLimitGpuMemory));
  limit(device.index(), std::min(1.0, static_cast<double>(budget) / total));
}

}  // namespace sluice
