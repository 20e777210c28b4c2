// What the tests of the null GPU share: the report of the process, device memory and streams.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/gpu/null/record.hpp"

// NOLINTNEXTLINE(bugprone-reserved-identifier): a name that nvcc's code calls.
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*,
                                       void*, void*, int*);

namespace null_gpu {

using nlohmann::json;
using testing::HasSubstr;

inline constexpr std::size_t kBytes = 1 << 20;

// As nvcc's code registers a kernel. `name` is mangled.
inline void register_kernel(const char* function, std::string name) {
  __cudaRegisterFunction(nullptr, function, name.data(), name.data(), 0, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
}

class NullGpu : public testing::Test {
 public:
  ~NullGpu() override {
    ::unsetenv("NULL_GPU_REPORT");
    std::filesystem::remove_all(folder_);
  }
  NullGpu(const NullGpu&) = delete;
  NullGpu& operator=(const NullGpu&) = delete;

 protected:
  NullGpu() {
    std::filesystem::create_directories(folder_);
    ::setenv("NULL_GPU_REPORT", folder_.c_str(), 1);
    before_ = report();
  }

  [[nodiscard]] json report() const {
    count_query();  // a process that used nothing writes no report
    write_report();
    std::ifstream file(folder_ / (std::to_string(::getpid()) + ".json"));
    return json::parse(file);
  }
  // The growth of a number since the test began.
  [[nodiscard]] std::int64_t grown(const std::string& pointer) const {
    const json::json_pointer at(pointer);
    return report().value(at, std::int64_t{0}) - before_.value(at, std::int64_t{0});
  }
  [[nodiscard]] std::string last_fault() const {
    const json faults = report()["faults"];
    return faults.empty() ? "" : faults.back().get<std::string>();
  }
  void expect_fault(const std::string& words) const {
    EXPECT_EQ(grown("/fault_count"), 1);
    EXPECT_THAT(last_fault(), HasSubstr(words));
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("null-gpu-" + std::to_string(::getpid()));
  json before_;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes = kBytes) {
    EXPECT_EQ(cudaMalloc(&address_, bytes), cudaSuccess);
  }
  ~DeviceMemory() { EXPECT_EQ(cudaFree(address_), cudaSuccess); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] char* get() const { return static_cast<char*>(address_); }

 private:
  void* address_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, flags, 0), cudaSuccess);
  }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
  }
  ~Event() { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace null_gpu
