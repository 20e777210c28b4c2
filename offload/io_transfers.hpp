// The transfers of an IoQueue.
//
// clang-format off
//   transfer   [fill -->] move --> slot is free
//              fill: a write that covers only part of a grain reads the grain first
// clang-format on
//
// A slot holds one transfer in flight; there are queue_depth slots. Each slot has an aligned bounce
// buffer of one grain, for ranges that O_DIRECT cannot move or that are no whole grains. The class
// owns slots, bounce buffers and checksums, and borrows the requests. Not thread-safe: only the IO
// thread calls the functions, except unit() and, while no request is outstanding, checksums().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/checksums.hpp"
#include "offload/extent_plan.hpp"
#include "offload/host_pool.hpp"
#include "offload/io_backend.hpp"
#include "offload/io_request.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

struct IoFiles {  // the open swap files of a store
  std::vector<int> descriptors;
  std::vector<std::string> paths;
  bool found = false;  // a former run wrote the files
};

class IoTransfers {
 public:
  // `plan` and `backend` must outlive the object. `memory`: ranges that the backend may register.
  IoTransfers(const NvmeOptions& options, const ExtentPlan& plan, IoFiles files, IoBackend& backend,
              std::vector<IoMemory> memory);

  // Ranges of multiples of unit() need no bounce buffer. Constant, so any thread may call unit().
  [[nodiscard]] std::int64_t unit() const { return unit_; }
  [[nodiscard]] Checksums& checksums() { return checksums_; }
  [[nodiscard]] NvmeStats& counts() { return counts_; }  // the IoQueue counts requests
  [[nodiscard]] bool has_free_slot() const { return !free_.empty(); }

  void start(IoRequest& request);  // the transfer at its cursor; REQUIRES: a free slot
  // Hashes the submitted writes while the device works on them.
  void hash_submitted();
  // Waits for completions, but only if `may_sleep`. The result is valid until the next call.
  [[nodiscard]] std::span<const IoCompletion> wait(bool may_sleep);
  void watch_for_stall();  // logs a slow device; throws IoError after the stall timeout

  // The steps of a completion, in order. If advance() returns false, it has submitted the rest of
  // the transfer, and the slot is not released. An error of the transfer is thrown by advance().
  [[nodiscard]] IoSlot& take(const IoCompletion& completion);
  [[nodiscard]] bool advance(IoSlot& slot, std::int64_t result);  // true: it has completed
  IoRequest& release(IoSlot& slot);                               // returns the slot's request

  void abandon();  // gives up the transfers in flight, which may never complete

 private:
  void cut(IoRequest& request, IoSlot& slot) const;
  void submit(IoSlot& slot);
  [[nodiscard]] bool finish(IoSlot& slot);
  void verify(const IoSlot& slot) const;
  [[noreturn]] void fail_transfer(const IoSlot& slot, int error, const std::string& why) const;

  const NvmeOptions options_;
  const ExtentPlan& plan_;
  const IoFiles files_;
  const std::int64_t unit_;
  IoBackend& backend_;
  Checksums checksums_;
  HostBlock bounce_;
  std::vector<IoSlot> slots_;
  std::vector<IoSlot*> free_, to_hash_;
  std::vector<IoCompletion> completions_;
  int in_flight_ = 0;
  std::int64_t last_progress_ns_ = 0, busy_since_ns_ = 0;
  bool slow_logged_ = false, abandoned_ = false;
  NvmeStats counts_;
};

}  // namespace sluice
