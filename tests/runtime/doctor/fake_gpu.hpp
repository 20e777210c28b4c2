// A GPU in RAM with an address space of its own (tests/runtime/engine/apart_device.hpp). Work
// advances its clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/doctor/gpu_device.hpp"
#include "tests/runtime/engine/apart_device.hpp"

namespace sluice::testing {

// Copies take their real time. Products and work in device memory take the time of these rates.
struct FakeGpuOptions {
  ApartFaults faults{};
  double fp32_flops = 4e13, bf16_flops = 6e14, fp16_flops = 7e14;
  // Products with a smaller side are slower in proportion.
  double saturating_side = 4096;
  double memory_bps = 4e12;
  std::int64_t free_bytes = std::int64_t{64} << 30;
  bool clock_stands = false;
};

class FakeGpu final : public GpuDevice {
 public:
  explicit FakeGpu(const FakeGpuOptions& options = {})
      : options_(options), copies_(std::make_shared<ApartDevice>(options.faults)) {}

  [[nodiscard]] GpuFacts facts() override {
    GpuFacts facts;
    facts.name = "NVIDIA H200";
    facts.compute = "9.0";
    facts.multiprocessors = 132;
    facts.copy_engines = 3;
    facts.memory_bytes = std::int64_t{139} << 30;
    facts.free_bytes = options_.free_bytes;
    facts.driver = "13.1";
    facts.runtime = "13.0";
    facts.bus_id = "0000:1B:00.0";
    return facts;
  }
  [[nodiscard]] std::shared_ptr<DeviceCopies> copies() override { return copies_; }
  [[nodiscard]] std::shared_ptr<PageSource> pages() override { return make_page_source(); }
  // The pages exist only during copies.
  [[nodiscard]] std::shared_ptr<void> allocate(std::int64_t bytes) override {
    if (bytes > options_.free_bytes) throw Error("no memory on the GPU");
    allocated_ += bytes;
    most_allocated_ = std::max(most_allocated_, allocated_);
    void* memory = std::malloc(static_cast<std::size_t>(bytes));
    return {memory, [this, bytes](void* at) {
              std::free(at);
              allocated_ -= bytes;
            }};
  }

  // On a copying thread: the time at which its copies have completed. On other threads: the clock
  // of the work.
  [[nodiscard]] Stamp stamp() override {
    double now = now_;
    try {
      copies_->begun().wait();
      now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
                .count();
    } catch (const Error&) {  // not such a thread, or the copy failed: settle() says so
    }
    return std::make_shared<double>(now);
  }
  [[nodiscard]] double seconds(const Stamp& from, const Stamp& to) override {
    if (options_.clock_stands) return 0;
    return *std::static_pointer_cast<double>(to) - *std::static_pointer_cast<double>(from);
  }

  void copy_within(void* /*to*/, const void* /*from*/, std::int64_t bytes) override {
    now_ += 2 * static_cast<double>(bytes) / options_.memory_bps;
  }
  void triad(void* /*to*/, const void* /*a*/, const void* /*b*/, std::int64_t elems) override {
    now_ += 12 * static_cast<double>(elems) / options_.memory_bps;
  }
  void prepare_product(DType dtype, std::int64_t side) override {
    dtype_ = dtype;
    side_ = side;
    sides_[dtype].push_back(side);
  }
  void multiply() override {
    const auto side = static_cast<double>(side_);
    const double peak = dtype_ == DType::kFloat32    ? options_.fp32_flops
                        : dtype_ == DType::kBFloat16 ? options_.bf16_flops
                                                     : options_.fp16_flops;
    const double rate = peak * std::min(1.0, side / options_.saturating_side);
    now_ += 2 * side * side * side / rate;
    busy_s_[dtype_] += 2 * side * side * side / rate;
  }

  [[nodiscard]] const ApartDevice& device() const { return *copies_; }
  [[nodiscard]] std::int64_t allocated() const { return allocated_; }
  [[nodiscard]] std::int64_t most_allocated() const { return most_allocated_; }
  [[nodiscard]] const std::vector<std::int64_t>& sides(DType dtype) { return sides_[dtype]; }
  [[nodiscard]] double busy_s(DType dtype) { return busy_s_[dtype]; }

 private:
  const FakeGpuOptions options_;
  const std::shared_ptr<ApartDevice> copies_;
  double now_ = 1;
  std::int64_t allocated_ = 0, most_allocated_ = 0;
  DType dtype_ = DType::kFloat32;
  std::int64_t side_ = 0;
  std::map<DType, std::vector<std::int64_t>> sides_;
  std::map<DType, double> busy_s_;
};

}  // namespace sluice::testing
