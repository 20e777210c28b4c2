// Ranges against a walk over their elements.
#include "runtime/checkpoint/format/range_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice {
namespace {

using testing::elements;

class RandomRanges {
 public:
  std::int64_t number(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution(least, most)(random_);
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(number(0, 4)));
    for (std::int64_t& dim : shape) dim = number(1, 9);
    return shape;
  }
  StateRange range(const std::vector<std::int64_t>& shape) {
    StateRange range{"p", StateKind::kMaster, TensorDType::kF32, shape, whole_box(shape), 0, 0};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (number(0, 1) == 0) continue;
      range.box.offset[d] = number(0, (shape[d] - 1) / 2);
      range.box.length[d] = number(1, shape[d] - range.box.offset[d]);
    }
    const std::int64_t elems = element_count(range.box.length);
    range.begin = number(0, (elems - 1) / 2);
    range.end = number(std::max(range.begin + 1, elems / 2), elems);
    return range;
  }

 private:
  std::mt19937 random_{51};
};

TEST(RangePlan, BoxesAreTheRange) {
  RandomRanges draw;
  for (int round = 0; round < 3000; ++round) {
    const StateRange range = draw.range(draw.shape());
    check_range(range);
    const std::vector<Box> boxes = boxes_of(range);
    EXPECT_LE(boxes.size(), std::max<std::size_t>(2 * range.shape.size(), 2) - 1);
    std::vector<std::int64_t> all;
    for (const Box& box : boxes) {
      const StateRange part{"p", StateKind::kMaster,       TensorDType::kF32, range.shape, box,
                            0,   element_count(box.length)};
      for (const std::int64_t e : elements(part)) all.push_back(e);
    }
    ASSERT_EQ(all, elements(range)) << describe(range);
  }
}

TEST(RangePlan, SharedRunsAreTheSharedElements) {
  RandomRanges draw;
  std::size_t compared = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::int64_t> shape = draw.shape();
    const StateRange from = draw.range(shape), to = draw.range(shape);
    const std::vector<std::int64_t> from_elems = elements(from), to_elems = elements(to);
    std::set<std::int64_t> expected, found;
    for (const std::int64_t e : from_elems) {
      if (std::binary_search(to_elems.begin(), to_elems.end(), e)) expected.insert(e);
    }
    for (const SharedRuns& runs : shared_runs(from, to)) {
      std::int64_t count = 0, from_before = -1, to_before = -1;
      for_each_run(runs, [&](std::int64_t f, std::int64_t t, std::int64_t n) {
        EXPECT_GT(f, from_before);
        EXPECT_GT(t, to_before);
        from_before = f;
        to_before = t;
        for (std::int64_t i = 0; i < n; ++i, ++count) {
          ASSERT_EQ(from_elems.at(static_cast<std::size_t>(f + i)),
                    to_elems.at(static_cast<std::size_t>(t + i)));
          EXPECT_TRUE(found.insert(from_elems[static_cast<std::size_t>(f + i)]).second);
        }
      });
      EXPECT_EQ(count, runs.elems());
    }
    ASSERT_EQ(found, expected) << describe(from) << " and " << describe(to);
    compared += found.size();
  }
  EXPECT_GT(compared, 10'000U);
}

TEST(RangePlan, WholeRowsAreOneRun) {
  StateRange rows = whole_range("p", StateKind::kMaster, TensorDType::kF32, {50, 8, 3});
  rows.box.offset[0] = 10;
  rows.box.length[0] = 20;
  rows.end = 20 * 24;
  const auto shared =
      shared_runs(whole_range("p", StateKind::kMaster, TensorDType::kF32, {50, 8, 3}), rows);
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].run, 480);
  EXPECT_TRUE(shared[0].counts.empty());
}

TEST(RangePlan, CoverIsExact) {
  RandomRanges draw;
  int covered = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::vector<std::int64_t> shape = draw.shape();
    std::vector<StateRange> ranges;
    // Slices along one dimension, each cut in two; sometimes one is moved, lost or there twice.
    const std::size_t dim =
        shape.empty() ? 0 : static_cast<std::size_t>(draw.number(0, 3)) % shape.size();
    const std::int64_t slices = shape.empty() ? 1 : shape[dim];
    for (std::int64_t s = 0; s < slices; ++s) {
      StateRange range = whole_range("p", StateKind::kMaster, TensorDType::kF32, shape);
      if (!shape.empty()) {
        range.box.offset[dim] = s;
        range.box.length[dim] = 1;
      }
      const std::int64_t elems = element_count(range.box.length);
      const std::int64_t middle = draw.number(0, elems);
      StateRange second = range;
      range.end = middle;
      second.begin = middle;
      second.end = elems;
      if (middle > 0) ranges.push_back(range);
      if (middle < elems) ranges.push_back(second);
    }
    StateRange& victim = ranges[static_cast<std::size_t>(draw.number(0, 99)) % ranges.size()];
    const std::int64_t change = draw.number(0, 4);
    if (change == 1) victim = draw.range(shape);
    if (change == 2) ranges.push_back(draw.range(shape));
    if (change == 3 && ranges.size() > 1) ranges.pop_back();
    std::map<std::int64_t, int> times;
    std::vector<const StateRange*> parts;
    for (const StateRange& range : ranges) {
      parts.push_back(&range);
      for (const std::int64_t e : elements(range)) ++times[e];
    }
    bool exact = static_cast<std::int64_t>(times.size()) == element_count(shape);
    for (const auto& [element, count] : times) exact = exact && count == 1;
    if (exact) {
      EXPECT_NO_THROW(check_covers(parts));
      ++covered;
    } else {
      EXPECT_THROW(check_covers(parts), Error);
      ++refused;
    }
  }
  EXPECT_GT(covered, 500);
  EXPECT_GT(refused, 500);
}

TEST(RangePlan, Names) {
  StateRange range = whole_range("h.w", StateKind::kMoment1, TensorDType::kF32, {768, 3072});
  EXPECT_EQ(tensor_name(range), "moment1/h.w");
  range.box = {{0, 1536}, {768, 1536}};
  range.end = 768 * 1536;
  EXPECT_EQ(tensor_name(range), "moment1/h.w@0+768,1536+1536");
  range.begin = 4096;
  range.end = 8192;
  EXPECT_EQ(tensor_name(range), "moment1/h.w@0+768,1536+1536#4096-8192");
  EXPECT_EQ(describe(range), "h.w [0:768, 1536:3072] elements 4096:8192");
}

TEST(RangePlan, WhatIsNoRange) {
  const StateRange good = whole_range("p", StateKind::kMaster, TensorDType::kF32, {4, 5});
  const auto bad = [&](auto&& change) {
    StateRange range = good;
    change(range);
    EXPECT_THROW(check_range(range), Error);
  };
  bad([](StateRange& r) { r.param.clear(); });
  bad([](StateRange& r) { r.box.length.pop_back(); });
  bad([](StateRange& r) { r.box.offset[0] = 1; });
  bad([](StateRange& r) { r.box.offset[0] = -1; });
  bad([](StateRange& r) { r.box.length[1] = 0; });
  bad([](StateRange& r) { r.box.length[1] = INT64_MAX; });
  bad([](StateRange& r) { r.end = 21; });
  bad([](StateRange& r) { r.begin = r.end; });
  bad([](StateRange& r) { r.begin = -1; });
  bad([](StateRange& r) { r.shape = {INT64_MAX, 5}; });
  EXPECT_THROW((void)element_count(std::vector<std::int64_t>{1LL << 40, 1LL << 40}), Error);
  EXPECT_THROW((void)element_count(std::vector<std::int64_t>{-1}), Error);
}

}  // namespace
}  // namespace sluice
