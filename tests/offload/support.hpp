// What the store's tests share: directories that vanish, byte patterns, stores of each kind.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "offload/io_backend.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

// In the build folder: a temporary folder in memory would not be a disk.
class Scratch {
 public:
  Scratch() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::path(SLUICE_BINARY_DIR) /
            ("offload-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::string dir(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::vector<std::string> names(const std::string& name) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / name)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::filesystem::path path_;
};

// Bytes at a multiple of 4096, or `skew` past one.
class Bytes {
 public:
  explicit Bytes(std::int64_t bytes, std::int64_t skew = 0)
      : memory_(static_cast<std::byte*>(
            ::operator new (static_cast<std::size_t>(bytes + skew), std::align_val_t{4096}))),
        data_(memory_.get() + skew),
        bytes_(bytes) {}

  static Bytes random(std::int64_t bytes, std::uint64_t seed, std::int64_t skew = 0) {
    Bytes result(bytes, skew);
    std::mt19937_64 generator(seed);
    for (std::int64_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(generator());
    return result;
  }

  std::byte& operator[](std::int64_t i) { return data_[i]; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data_, data_ + bytes_}; }
  bool operator==(const Bytes& other) const { return copy() == other.copy(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_;
  std::int64_t bytes_;
};

// Small blocks, so that small extents have many.
inline NvmeOptions small_options(const Scratch& scratch, int paths = 1) {
  NvmeOptions options;
  for (int i = 0; i < paths; ++i) options.paths.push_back(scratch.dir("p" + std::to_string(i)));
  options.run_id = "test-run";
  options.block_bytes = 16 * kKiB;
  options.checksum_bytes = 8 * kKiB;
  options.queue_depth = 5;
  options.stall_timeout_s = 20;
  return options;
}

[[nodiscard]] inline bool has_uring() {
  try {
    return make_uring_backend(1) != nullptr;
  } catch (const IoError&) {
    return false;
  }
}

// Disarms at the end of the test.
struct Faults {
  explicit Faults(const std::string& text) { arm_failpoints(text); }
  ~Faults() { arm_failpoints(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

// The text of the E that `action` throws; a failure where it throws nothing.
template <class E, class F>
std::string error_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace sluice
