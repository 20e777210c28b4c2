// Budgets and locations of a rank's off-device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

// 0.25 ms on a 32 GB/s bus, so the cost of starting a copy is negligible.
inline constexpr std::int64_t kBounceBytes = std::int64_t{8} << 20;

// A former run's image on NVMe (offload.image).
struct ImageRequest {
  bool look = false;  // search for an image; false: the files of a former run are removed
  // With look false: throw IoError instead of removing an image that a run could resume from.
  bool spare = false;
  std::int64_t checkpoint = -1;  // step of the newest; an older image is not taken
  // Called before an image is removed for a checkpoint: reads the checkpoints' contents and returns
  // the step of the newest whole one; -1: none. With look false: throws if the named one is
  // damaged. Collective. Empty: contents are not read.
  std::function<std::int64_t()> read_checkpoint;
};

struct TierOptions {
  std::int64_t host_budget = 0;  // bytes of this rank; 0: counted only
  NvmeOptions nvme;              // paths, run, rank, budget
  ImageRequest image;
  std::shared_ptr<PageSource> host_pages = make_page_source();
  // The members below are for a device other than the host. Pages of memory that is copied to or
  // from the device; null: on a GPU, host_pages registered with the GPU.
  std::shared_ptr<PageSource> dma_pages;
  // The bounce buffer has two halves, for reduced gradients that the host adds. A multiple of 128.
  std::int64_t bounce_bytes = kBounceBytes;
  // Makes the copies of an engine; empty: the copies of its device.
  std::function<std::shared_ptr<DeviceCopies>()> make_copies;
};

}  // namespace sluice
