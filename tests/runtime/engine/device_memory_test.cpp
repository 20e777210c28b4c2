// The long-lived blocks: what they are, and that steps find their pages there.
#include "runtime/engine/device_memory.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "parallel/comm/host/host_memory.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

constexpr auto kFloat = c10::ScalarType::Float;

bool is_resident(const at::Tensor& block) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((block.nbytes() + page - 1) / page);
  EXPECT_EQ(mincore(block.data_ptr(), block.nbytes(), pages.data()), 0);
  return std::all_of(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

TEST(DeviceMemory, BlocksAreZeroResidentAndCounted) {
  for (const bool peers_map : {false, true}) {
    const DeviceMemory memory(at::Device(c10::DeviceType::CPU), peers_map);
    for (const std::int64_t elems : {1LL, 1023LL, (1LL << 20) + 7}) {
      const std::int64_t before = allocation_count(CountedDevice::kHost).live;
      for (const BlockUse use : {BlockUse::kOwn, BlockUse::kCollective}) {
        at::Tensor block = memory.block(elems, c10::ScalarType::BFloat16, use);
        EXPECT_EQ(allocation_count(CountedDevice::kHost).live - before, 2 * elems);
        EXPECT_EQ(block.numel(), elems);
        EXPECT_EQ(block.scalar_type(), c10::ScalarType::BFloat16);
        EXPECT_TRUE(block.is_cpu() && block.is_contiguous());
        EXPECT_TRUE(is_resident(block));
        EXPECT_EQ(block.count_nonzero().item<std::int64_t>(), 0);
        const at::Tensor last = block.narrow(0, elems - 1, 1).fill_(1.0);
        block.reset();  // a view keeps the whole block
        EXPECT_EQ(allocation_count(CountedDevice::kHost).live - before, 2 * elems);
        EXPECT_EQ(last.item<float>(), 1.0F);
      }
      EXPECT_EQ(allocation_count(CountedDevice::kHost).live, before);
    }
    EXPECT_EQ(memory.block(0, kFloat, BlockUse::kCollective).numel(), 0);
  }
}

TEST(DeviceMemory, OnlyWhatCollectivesSendIsMadeToBeMapped) {
  const at::Device cpu(c10::DeviceType::CPU);
  const auto can_be_mapped = [&](bool peers_map, BlockUse use) {
    const at::Tensor block = DeviceMemory(cpu, peers_map).block(5001, kFloat, use);
    return host_region_of(block.data_ptr(), static_cast<std::int64_t>(block.nbytes())).id != 0;
  };
  EXPECT_TRUE(can_be_mapped(true, BlockUse::kCollective));
  EXPECT_FALSE(can_be_mapped(true, BlockUse::kOwn));
  EXPECT_FALSE(can_be_mapped(false, BlockUse::kCollective));
}

TEST(DeviceMemory, PrivateBlocksBeginOnAHugePage) {
  const DeviceMemory memory(at::Device(c10::DeviceType::CPU), false);
  const at::Tensor block = memory.block((5LL << 20) + 3, c10::ScalarType::Byte, BlockUse::kOwn);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data_ptr()) % (2U << 20), 0U);
}

// More than there is: an error in words, and nothing is left counted.
TEST(DeviceMemory, SaysWhatItCouldNotTake) {
  const DeviceMemory memory(at::Device(c10::DeviceType::CPU), false);
  const std::int64_t before = allocation_count(CountedDevice::kHost).live;
  EXPECT_THROW((void)memory.block(1LL << 48, c10::ScalarType::Byte, BlockUse::kOwn), IoError);
  EXPECT_EQ(allocation_count(CountedDevice::kHost).live, before);
}

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// A step touches some 40 MB of long-lived memory and 10 MB of activations: 10,000 small pages. The
// bound leaves room for what the test itself and the C library do.
TEST(DeviceMemory, StepsTakeNoPages) {
  install_counting_allocators();
  EngineOptions options = tiny_options();
  options.model = {.layers = 2, .hidden = 256, .heads = 4, .vocab = 4001, .seq = 128};
  for (const int stage : {1, 3}) {
    options.dp = 1;
    options.zero.stage = stage;
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      for (int step = 1; step <= 2; ++step) {
        (void)engine.train_step({.step = step, .lr = 1e-3});
      }
      const std::int64_t before = minor_faults();
      for (int step = 3; step <= 7; ++step) {
        (void)engine.train_step({.step = step, .lr = 1e-3});
      }
      const std::int64_t faults = minor_faults() - before;
      std::printf("stage %d: %lld minor faults in 5 steps\n", stage,
                  static_cast<long long>(faults));
      EXPECT_LT(faults, 5 * 100) << "stage " << stage;
    });
  }
}

// What libtorch's allocator of a card of 1000 bytes says, of which 700 are free and 200 reserved.
class FakeCard final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override { current = 0; }
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    EXPECT_EQ(device, 1);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].peak = 150;
    stats.reserved_bytes[0].current = current;
    stats.reserved_bytes[0].peak = peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override { peak = current; }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    return {700, 1000};
  }

  std::int64_t current = 200;
  std::int64_t peak = 300;
};

TEST(GpuMemory, IsWhatTheAllocatorHasReserved) {
  static FakeCard card;  // libtorch keeps the pointer
  c10::SetAllocator(c10::DeviceType::CUDA, &card, 1);
  const at::Device gpu(c10::DeviceType::CUDA, 1);
  EXPECT_EQ(reserved_peak_bytes(gpu), 300);
  reset_reserved_peak(gpu);
  EXPECT_EQ(reserved_peak_bytes(gpu), 200);
  EXPECT_EQ(available_bytes(gpu), 900);
  return_reserved_memory(gpu);
  EXPECT_EQ(available_bytes(gpu), 700);
}

}  // namespace
}  // namespace sluice::testing
