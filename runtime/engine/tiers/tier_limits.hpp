// Budgets and places of what a rank keeps off its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

// A quarter of a millisecond of a 32 GB/s bus: enough that what starting a copy costs is lost in
// it.
inline constexpr std::int64_t kBounceBytes = std::int64_t{8} << 20;

// A former run's image on NVMe (offload.image).
struct ImageRequest {
  bool look = false;             // false: whatever is there is removed,
  bool spare = false;            // or, where a run could go on from it, an IoError
  std::int64_t checkpoint = -1;  // step of the newest; an older image is not taken
};

struct TierOptions {
  std::int64_t host_budget = 0;  // bytes of this rank; 0: counted only
  NvmeOptions nvme;              // paths, run, rank, budget
  ImageRequest image;
  std::shared_ptr<PageSource> host_pages = make_page_source();
  // The rest is what a device that is not the host takes. Of memory that is copied from and to it;
  // null: a GPU's are host_pages, registered with it.
  std::shared_ptr<PageSource> dma_pages;
  // In two halves: reduced gradients that the host adds pass through it. A multiple of 128.
  std::int64_t bounce_bytes = kBounceBytes;
  // For each engine; empty: those of its device.
  std::function<std::shared_ptr<DeviceCopies>()> make_copies;
};

}  // namespace sluice
