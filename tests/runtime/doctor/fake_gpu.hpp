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
#include "runtime/doctor/gpu_rates.hpp"
#include "tests/runtime/engine/apart_device.hpp"

namespace sluice::testing {

// Copies take their real time. Products and work in device memory take the time of these rates.
struct FakeGpuOptions {
  ApartFaults faults{};
  double fp32_flops = 4e13, bf16_flops = 6e14, fp16_flops = 7e14, fp8_flops = 1.2e15;
  std::string compute = "9.0";
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
    facts.compute = options_.compute;
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
    try {
      copies_->begun().wait();
    } catch (const Error&) {  // not such a thread, or the copy failed: settle() says so
      return std::make_shared<double>(now_);
    }
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::make_shared<double>(std::chrono::duration<double>(now).count());
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
  void prepare_product(ProductType type, std::int64_t side) override {
    type_ = type;
    side_ = side;
    sides_[type].push_back(side);
  }
  void multiply() override {
    const auto side = static_cast<double>(side_);
    const double rate = peak() * std::min(1.0, side / options_.saturating_side);
    now_ += 2 * side * side * side / rate;
    busy_s_[type_] += 2 * side * side * side / rate;
  }

  // Of 1e14 FLOP/s with heads of 64 and rows of 1024, and more in proportion to both; cuDNN's half
  // as much more.
  [[nodiscard]] AttentionProbe attention() {
    return [this](const AttentionShape& shape) {
      const auto n = [](std::int64_t count) { return static_cast<double>(count); };
      const double pairs = n(shape.samples * shape.heads) * n(shape.tokens) * n(shape.tokens) / 2;
      const double rate =
          (shape.cudnn ? 1.5e14 : 1e14) * n(shape.head_dim) / 64 * n(shape.tokens) / 1024;
      const double seconds = 7 * 2 * pairs * n(shape.head_dim) / rate;
      return [this, seconds] { now_ += seconds; };
    };
  }

  [[nodiscard]] const ApartDevice& device() const { return *copies_; }
  [[nodiscard]] std::int64_t allocated() const { return allocated_; }
  [[nodiscard]] std::int64_t most_allocated() const { return most_allocated_; }
  [[nodiscard]] const std::vector<std::int64_t>& sides(ProductType type) { return sides_[type]; }
  [[nodiscard]] double busy_s(ProductType type) { return busy_s_[type]; }

 private:
  [[nodiscard]] double peak() const {
    switch (type_) {
      case ProductType::kFp32:
        return options_.fp32_flops;
      case ProductType::kBf16:
        return options_.bf16_flops;
      case ProductType::kFp16:
        return options_.fp16_flops;
      case ProductType::kFp8:
        return options_.fp8_flops;
    }
    return 0;
  }

  const FakeGpuOptions options_;
  const std::shared_ptr<ApartDevice> copies_;
  double now_ = 1;
  std::int64_t allocated_ = 0, most_allocated_ = 0;
  ProductType type_ = ProductType::kFp32;
  std::int64_t side_ = 0;
  std::map<ProductType, std::vector<std::int64_t>> sides_;
  std::map<ProductType, double> busy_s_;
};

}  // namespace sluice::testing
