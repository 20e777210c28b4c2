#include "offload/extent_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

TEST(ExtentPlan, PlacesEveryByteOnceInEveryFileWithoutHoles) {
  for (const int files : {1, 2, 3, 5}) {
    ExtentPlan plan(files, 16384);
    for (const std::int64_t bytes : {1, 4096, 16384, 16385, 50000, 200000, 81920, 7}) {
      plan.add("t", std::to_string(plan.extents()), bytes);
    }
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> taken(
        static_cast<std::size_t>(files));
    for (int e = 0; e < plan.extents(); ++e) {
      const std::int64_t padded = plan.extent(e).padded;
      EXPECT_EQ(padded % 4096, 0);
      for (std::int64_t at = 0; at < padded;) {
        const ExtentPlan::Place place = plan.place(e, at);
        EXPECT_EQ(place.offset % 4096, 0);
        ASSERT_GT(place.contiguous, 0);
        taken[static_cast<std::size_t>(place.file)].push_back(
            {place.offset, place.offset + place.contiguous});
        EXPECT_EQ(plan.place(e, at + place.contiguous - 1).offset,
                  place.offset + place.contiguous - 1);
        at += place.contiguous;
      }
    }
    for (int f = 0; f < files; ++f) {
      auto& ranges = taken[static_cast<std::size_t>(f)];
      std::sort(ranges.begin(), ranges.end());
      std::int64_t end = ExtentPlan::kHeaderBytes;
      for (const auto& [first, last] : ranges) {
        EXPECT_EQ(first, end);
        end = last;
      }
      EXPECT_EQ(end, plan.file_bytes(f));
    }
  }
}

TEST(ExtentPlan, SpreadsSmallAndLargeEvenly) {
  ExtentPlan plan(4, 65536);
  for (int i = 0; i < 40; ++i) plan.add("t", std::to_string(i), 10000 + 3000 * i);
  plan.add("t", "large", 10'000'000);
  std::int64_t least = plan.file_bytes(0), most = least;
  for (int f = 1; f < 4; ++f) {
    least = std::min(least, plan.file_bytes(f));
    most = std::max(most, plan.file_bytes(f));
  }
  EXPECT_LE(most - least, 2 * 65536);
}

TEST(ExtentPlan, TagsAndHash) {
  const auto make = [](const char* name, std::int64_t bytes) {
    ExtentPlan plan(2, 8192);
    plan.add("small", name, 100);
    plan.add("large", "b", bytes);
    return plan;
  };
  const ExtentPlan plan = make("a", 5000);
  EXPECT_EQ(plan.total_bytes(), 4096 + 8192);
  EXPECT_EQ(plan.bytes_by_tag().front().first, "large");
  EXPECT_EQ(plan.layout_hash(), make("a", 5000).layout_hash());
  EXPECT_NE(plan.layout_hash(), make("c", 5000).layout_hash());
  EXPECT_NE(plan.layout_hash(), make("a", 5001).layout_hash());
}

TEST(ExtentPlan, RefusesWhatCannotBeAnExtent) {
  ExtentPlan plan(1, 4096);
  plan.add("t", "a", 1);
  EXPECT_THROW(plan.add("t", "a", 1), ConfigError);
  EXPECT_THROW(plan.add("t", "b", 0), ConfigError);
  EXPECT_THROW((void)plan.place(0, 4096), Error);
}

}  // namespace
}  // namespace sluice
