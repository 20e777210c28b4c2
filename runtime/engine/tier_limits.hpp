// Budgets and places of what a rank keeps off its device.
#pragma once

#include <cstdint>
#include <memory>

#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

struct TierOptions {
  std::int64_t host_budget = 0;  // bytes of this rank; 0: counted only
  NvmeOptions nvme;              // paths, run, rank, budget
  std::shared_ptr<PageSource> host_pages = make_page_source();
};

}  // namespace sluice
