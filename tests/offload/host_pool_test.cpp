#include "offload/host_pool.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(HostPool, BlocksAreWholePagesZeroedAndAligned) {
  HostPool pool;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{5000},
                                   2 * kMiB, 2 * kMiB + 1, 5 * kMiB + 4097}) {
    const HostBlock block = pool.allocate("x", bytes);
    const std::uintptr_t alignment = bytes >= 2 * kMiB ? 2U << 20U : 4096U;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % alignment, 0U) << bytes;
    EXPECT_EQ(block.bytes(), bytes);
    EXPECT_EQ(block.counted_bytes(), round_up(bytes, 4096));  // nothing to a power of two
    for (std::int64_t i = 0; i < block.counted_bytes(); i += 997) {
      ASSERT_EQ(block.data()[i], std::byte{0});
      block.data()[i] = std::byte{1};
    }
    EXPECT_EQ(pool.used_bytes(), block.counted_bytes());
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.peak_bytes(), round_up(5 * kMiB + 4097, 4096));
}

TEST(HostPool, CountsBlocksAndReservations) {
  HostPool pool;
  HostBlock a = pool.allocate("a", 4096), b = pool.allocate("b", 8192);
  const HostBlock lent = pool.reserve("b", 100);
  EXPECT_EQ(lent.data(), nullptr);
  EXPECT_EQ(pool.used_bytes(), 4096 + 8192 + 100);
  b.reset();
  a = HostBlock();
  EXPECT_EQ(pool.used_bytes(), 100);
  EXPECT_EQ(pool.peak_bytes(), 4096 + 8292);
}

// One budget over pages of two kinds, each given back where it came from.
TEST(HostPool, ABlockMayHavePagesOfItsOwn) {
  class Counted final : public PageSource {
   public:
    [[nodiscard]] void* map(std::int64_t bytes) override {
      mapped += bytes;
      return pages->map(bytes);
    }
    void unmap(void* memory, std::int64_t bytes) noexcept override {
      mapped -= bytes;
      pages->unmap(memory, bytes);
    }
    [[nodiscard]] const char* name() const override { return "counted"; }
    std::shared_ptr<PageSource> pages = make_page_source();
    std::int64_t mapped = 0;
  };
  const auto other = std::make_shared<Counted>();
  HostPool pool(4 * 4096);
  const HostBlock own = pool.allocate("own", 4096);
  EXPECT_EQ(pool.other_source_bytes(), 0);
  HostBlock block = pool.allocate("other", 5000, other);
  EXPECT_EQ(pool.other_source_bytes(), 8192);
  EXPECT_EQ(other->mapped, 8192);
  EXPECT_EQ(pool.used_bytes(), 3 * 4096);
  EXPECT_THROW((void)pool.allocate("other", 8192, other), BudgetError);
  EXPECT_EQ(other->mapped, 8192);
  HostBlock moved = std::move(block);
  EXPECT_EQ(other->mapped, 8192);
  moved = HostBlock();
  EXPECT_EQ(other->mapped, 0);
  EXPECT_EQ(pool.other_source_bytes(), 0);
  HostBlock left = pool.allocate("other", 4096, other);
  left.leak();
  EXPECT_EQ(other->mapped, 4096);
}

TEST(HostPool, OverBudgetNamesTheLargestTags) {
  HostPool pool(64 * kKiB);
  const HostBlock small = pool.allocate("weights", 8 * kKiB);
  const HostBlock large = pool.allocate("moments", 40 * kKiB);
  try {
    (void)pool.allocate("gradients", 20 * kKiB);
    FAIL() << "no error";
  } catch (const BudgetError& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory.host is 64.0 KiB"));
    EXPECT_THAT(error.what(), HasSubstr("20.0 KiB of gradients"));
    EXPECT_THAT(error.what(), HasSubstr("4.00 KiB too much"));
    EXPECT_THAT(error.what(), HasSubstr("moments 40.0 KiB, weights 8.00 KiB"));
  }
  EXPECT_EQ(pool.used_bytes(), 48 * kKiB);
  EXPECT_EQ(pool.allocate("gradients", 16 * kKiB).bytes(), 16 * kKiB);  // exactly full
}

TEST(HostPool, PagesThatCannotBeHadAreNotCounted) {
  struct None final : PageSource {
    void* map(std::int64_t) override { throw BudgetError("none"); }
    void unmap(void*, std::int64_t) noexcept override {}
    [[nodiscard]] const char* name() const override { return "none"; }
  };
  HostPool pool(0, std::make_shared<None>());
  EXPECT_THROW((void)pool.allocate("x", 4096), BudgetError);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(HostPool, ManyThreadsAndBlocksThatOutliveIt) {
  HostBlock kept;
  {
    HostPool pool(kMiB);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&pool] {
        for (int round = 0; round < 100; ++round) (void)pool.allocate("x", 4096 * 8);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.used_bytes(), 0);
    kept = pool.allocate("kept", 4096);
  }
  kept.data()[4095] = std::byte{1};
}

}  // namespace
}  // namespace sluice
