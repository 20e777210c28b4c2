// NVTX ranges for Nsight Systems and other tools (output.nvtx), in the domain "sluice".
//
// NVTX is headers alone: the first call loads the tool's library, which the tool names in
// NVTX_INJECTION64_PATH. Without a tool a call is a test of a pointer. A build without the headers
// takes no_nvtx.cpp, whose calls do nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace sluice {

// False: this program was built without NVTX's headers.
[[nodiscard]] bool nvtx_built();

class NvtxRanges {
 public:
  NvtxRanges();
  ~NvtxRanges();
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  // A range of the calling thread: push and pop nest. A text that recurs is registered with the
  // tool once.
  void push(const std::string& text);
  // The same for a text that does not recur.
  void push_once(const std::string& text);
  void pop();
  // A range that another thread may end, by the number that start() returns.
  [[nodiscard]] std::uint64_t start(const std::string& text);
  void end(std::uint64_t range);
  // The calling thread's name in the tool.
  void name_thread(const std::string& name);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
