// Tiers of a device that is not the host: in another address space, behind the host, with copies of
// its own. The bits are those of a device in RAM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "offload/io_backend.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/plan/plan_text.hpp"
#include "tests/runtime/engine/apart_device.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// Every engine's device is one, with the least bounce buffer that several pieces pass through.
void set_apart(EngineOptions& options, std::int64_t bounce_bytes = 4096) {
  options.tiers.make_copies = [] { return std::make_shared<ApartDevice>(); };
  options.tiers.bounce_bytes = bounce_bytes;
}

TEST(TiersApart, AddressesOfTheDeviceFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  int value = 7;
  const ApartDevice device;
  const std::uintptr_t address = device.address(&value).address();
  EXPECT_DEATH((void)*reinterpret_cast<volatile int*>(address), "");
}

TEST(TiersApart, EveryPlacementIsBitIdenticalSampled) {
  run_matrix(17, [](EngineOptions& options) { set_apart(options); });
}

TEST(TiersApart, EveryPlacementIsBitIdentical) {
  if (!slow_tests()) {
    GTEST_SKIP() << "the whole matrix runs with SLUICE_SLOW_TESTS=1";
  }
  run_matrix(1, [](EngineOptions& options) { set_apart(options); });
}

TEST(TiersApart, AShareOnTheDeviceIsBitIdentical) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = tier_options(dtype, 1);
    options.model.hidden = 96;  // shards of more than a chunk, so that a share is not nothing
    const WorldResult oracle = train_world(options, kTierSteps, Wire::kLocal);
    set_apart(options);
    options.offload.nvme_path = {folder.path().string()};
    for (const int stage : {0, 1, 2, 3}) {
      options.zero.stage = stage;
      for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
        options.offload.optimizer = tier;
        options.offload.device_fraction = 0.4;
        options.offload.chunks = stage == 2 ? 1 : 3;
        expect_same_bits(train_world(options, kTierSteps, Wire::kLocal), oracle,
                         name_of_tier(tier) + ", stage " + std::to_string(stage));
      }
    }
  }
}

// The first chunks' states stay in the ring; a step is thrown away; parameters are set and read.
TEST(TiersApart, WhatComesBetweenStepsIsBitIdentical) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kFloat16, 2);
  const WorldResult oracle = train_with_interruptions(options);
  set_apart(options);
  options.offload.nvme_path = {folder.path().string()};
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    place(options, {tier, tier, tier, tier});
    options.zero.stage = 3;
    options.recompute.mode = RecomputeMode::kFull;
    expect_same_bits(train_with_interruptions(options), oracle, name_of_tier(tier));
  }
}

// Buckets of 16 KiB in pieces of 64 bytes, of some that cut gradients where they are not even, and
// in one.
TEST(TiersApart, TheBounceBufferMayHaveAnySize) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kBFloat16, 3);
  const WorldResult oracle = train_world(options, 2, Wire::kLocal);
  options.offload.nvme_path = {folder.path().string()};
  options.zero.stage = 2;
  options.offload.optimizer = Tier::kHost;
  for (const Tier gradients : {Tier::kHost, Tier::kNvme}) {
    options.offload.gradients = gradients;
    for (const std::int64_t bytes : {128, 3200, 1 << 20}) {
      set_apart(options, bytes);
      expect_same_bits(train_world(options, 2, Wire::kLocal), oracle,
                       name_of_tier(gradients) + ", " + std::to_string(bytes) + " bytes");
    }
  }
}

std::int64_t host_peak(const EngineOptions& options, std::int64_t* planned = nullptr) {
  std::int64_t peak = 0;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    if (rank != 0) return;
    peak = engine.tiers()->host_peak_bytes();
    if (planned != nullptr) {
      *planned = plan_memory(engine.train_program(), {}).of(Tier::kHost).peak;
    }
  });
  return peak;
}

// Nothing where the device is the host, and where nothing is added.
TEST(TiersApart, TheBounceBufferIsCountedAndPlanned) {
  for (const int accumulation : {1, 3}) {
    EngineOptions options = tier_options(DType::kFloat32, accumulation);
    options.zero.stage = 2;
    place(options, {Tier::kHost, Tier::kDevice, Tier::kHost, Tier::kDevice});
    std::int64_t planned_near = 0;
    std::int64_t planned_apart = 0;
    const std::int64_t near = host_peak(options, &planned_near);
    set_apart(options, 64 * kKiB);
    const std::int64_t apart = host_peak(options, &planned_apart);
    EXPECT_EQ(apart - near, accumulation > 1 ? 64 * kKiB : 0);
    EXPECT_EQ(planned_apart - planned_near, apart - near);
    EXPECT_EQ(planned_apart, apart);
  }
}

// Each operation that copies has its own mark, and lanes work in both directions at a time.
TEST(TiersApart, EveryCopyHasAMarkAndBothWaysAreUsedAtOnce) {
  EngineOptions options = tier_options(DType::kBFloat16, 2);
  options.zero.stage = 3;
  place(options, {Tier::kHost, Tier::kHost, Tier::kHost, Tier::kHost});
  options.recompute.mode = RecomputeMode::kFull;
  std::mutex mutex;
  std::vector<std::shared_ptr<ApartDevice>> devices;
  options.tiers.make_copies = [&] {
    const std::lock_guard lock(mutex);
    devices.push_back(std::make_shared<ApartDevice>(ApartFaults{.slow = true}));
    return devices.back();
  };
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    (void)engine.train_step({.step = 2, .lr = 1e-3});
    std::int64_t handed_over = 0;
    for (const Op& op : engine.train_program().ops) {
      const bool copies = op.lane == Lane::kToHost || op.lane == Lane::kToDevice;
      handed_over += copies || op.lane == Lane::kComm ? 1 : 0;
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(devices[0]->marks(), 2 * handed_over);
  });
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_GT(devices[0]->copies(), 0);
  EXPECT_TRUE(devices[0]->both_ways() || devices[1]->both_ways());
}

// Pages that know whether they were given back.
class CountedPages final : public PageSource {
 public:
  [[nodiscard]] void* map(std::int64_t bytes) override {
    void* memory = pages_->map(bytes);
    const std::lock_guard lock(mutex_);
    mapped_.insert(memory);
    most_ = std::max(most_, mapped_.size());
    return memory;
  }
  void unmap(void* memory, std::int64_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      mapped_.erase(memory);
    }
    pages_->unmap(memory, bytes);
  }
  [[nodiscard]] const char* name() const override { return "counted"; }
  [[nodiscard]] std::size_t mapped() const { return mapped_.size(); }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  const std::shared_ptr<PageSource> pages_ = make_page_source();
  std::mutex mutex_;
  std::set<void*> mapped_;
  std::size_t most_ = 0;
};

// Calls `ends` in its destructor. A store destroys its backend after its last request.
class EndingBackend final : public IoBackend {
 public:
  EndingBackend(std::unique_ptr<IoBackend> inner, std::function<void()> ends)
      : inner_(std::move(inner)), ends_(std::move(ends)) {}
  ~EndingBackend() override { ends_(); }

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void use_files(std::span<const int> descriptors) override { inner_->use_files(descriptors); }
  void use_memory(std::span<const IoMemory> ranges) override { inner_->use_memory(ranges); }
  void submit(const IoTransfer& transfer) override { inner_->submit(transfer); }
  void flush() override { inner_->flush(); }
  void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
    inner_->wait(completions, timeout_ms);
  }
  void wake() noexcept override { inner_->wake(); }

 private:
  const std::unique_ptr<IoBackend> inner_;
  const std::function<void()> ends_;
};

// A failed step leaves requests to the drive behind. The store waits for them when it ends.
TEST(TiersApart, NoPageGoesBeforeTheRequestsOnIt) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kFloat32, 1);
  options.dp = 1;
  options.train.global_batch = options.train.micro_batch;
  options.zero.stage = 3;
  options.recompute.mode = RecomputeMode::kFull;
  place(options, {Tier::kNvme, Tier::kNvme, Tier::kNvme, Tier::kNvme});
  options.offload.nvme_path = {folder.path().string()};
  const auto pages = std::make_shared<CountedPages>();
  options.tiers.dma_pages = pages;
  std::vector<std::size_t> mapped;
  options.tiers.nvme.wrap_backend = [&](std::unique_ptr<IoBackend> inner) {
    return std::make_unique<EndingBackend>(std::move(inner),
                                           [&] { mapped.push_back(pages->mapped()); });
  };
  (void)train_world(options, 2, Wire::kLocal);
  EXPECT_GE(pages->most(), 2U);
  EXPECT_EQ(mapped, std::vector<std::size_t>{pages->most()});
}

std::string failure_of(EngineOptions options, const ApartFaults& faults, std::size_t* left) {
  const auto pages = std::make_shared<CountedPages>();
  options.tiers.dma_pages = pages;
  options.tiers.make_copies = [faults] { return std::make_shared<ApartDevice>(faults); };
  std::string text;
  try {
    (void)train_world(options, 2, Wire::kLocal);
  } catch (const std::exception& error) {
    text = error_chain(error);
  }
  *left = pages->mapped();
  return text;
}

// Whichever copy it is: the run ends, with the operation and the cause, nothing is under way when
// memory goes, and what copies of unknown end may reach does not go.
TEST(TiersApart, ACopyThatFailsEndsTheRun) {
  EngineOptions options = tier_options(DType::kFloat32, 2);
  options.dp = 1;
  options.train.global_batch = options.train.micro_batch * 2;
  options.zero.stage = 3;
  options.recompute.mode = RecomputeMode::kFull;
  place(options, {Tier::kHost, Tier::kHost, Tier::kHost, Tier::kHost});
  options.tiers.bounce_bytes = 4096;
  std::shared_ptr<ApartDevice> whole;
  options.tiers.make_copies = [&] { return whole = std::make_shared<ApartDevice>(); };
  (void)train_world(options, 2, Wire::kLocal);
  const std::int64_t last = whole->copies() - 1;
  ASSERT_GT(last, 40);
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{17}, std::int64_t{40}, last}) {
    std::size_t left = 0;
    const std::string refused = failure_of(options, {.refuse = number}, &left);
    EXPECT_THAT(refused, HasSubstr("bytes: refused")) << number;
    EXPECT_EQ(left, 0U) << number;
    const std::string failed = failure_of(options, {.fail = number}, &left);
    EXPECT_THAT(failed, HasSubstr("bytes: failed under way")) << number;
    EXPECT_GT(left, 0U) << number;
  }
}

TEST(TiersApart, DecodesWithParametersElsewhere) {
  const TemporaryFolder folder;
  EngineOptions options = tiny_options();
  options.generate_positions = options.model.seq;
  options.purpose = EnginePurpose::kGenerate;
  const std::vector<std::int64_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  const auto logits = [&] {
    std::vector<float> all;
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      const std::span<const std::int64_t> given(tokens);
      for (std::size_t p = 5; p <= tokens.size(); ++p) {
        const at::Tensor row =
            (p == 5 ? engine.decode(0, given.first(5))
                    : engine.decode(static_cast<std::int64_t>(p) - 1, given.subspan(p - 1, 1)))
                .contiguous();
        all.insert(all.end(), host_data<float>(row), host_data<float>(row) + row.numel());
      }
    });
    return all;
  };
  const std::vector<float> near = logits();
  options.zero.stage = 3;
  options.offload.nvme_path = {folder.path().string()};
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    place(options, {tier, tier, Tier::kDevice, Tier::kDevice});
    set_apart(options);
    EXPECT_EQ(logits(), near) << name_of_tier(tier);
  }
}

}  // namespace
}  // namespace sluice::testing
