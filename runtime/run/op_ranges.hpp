// The operations of a rank's programs as NVTX ranges (output.nvtx).
//
//   executing thread   step 12 > wait for Forward unit 3, ... > Forward unit 3, micro-batch 0
//   thread of a lane   Gather group 4
//
// An operation of the lanes comm, pipe and disk whose end is followed has a second range, of the
// process, from its start to its completion. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/observe/nvtx.hpp"
#include "runtime/program/op_watch.hpp"

namespace sluice {

class OpRanges final : public OpWatch {
 public:
  void program_begins(const std::string& name) override;
  void program_ends() override { ranges_.pop(); }
  void wait_begins(const Op& op) override;
  void wait_ends() override { ranges_.pop(); }
  void begin(const Op& op, bool followed) override;
  void end() override { ranges_.pop(); }
  void completed(const Op& op) override;

 private:
  void name_thread(Lane lane);

  NvtxRanges ranges_;
  std::mutex mutex_;
  std::unordered_map<const Op*, std::uint64_t> under_way_;  // guarded by mutex_
};

}  // namespace sluice
