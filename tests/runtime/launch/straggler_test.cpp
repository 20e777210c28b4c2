#include "runtime/launch/straggler.hpp"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(Straggler, IsTheRankThatTheOthersWaitFor) {
  const std::vector<double> busy{50, 52, 120, 51};
  const std::vector<double> waited{70, 68, 0, 69};
  const auto found = find_straggler(busy, waited);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_DOUBLE_EQ(found->busy_ms, 120);
  EXPECT_DOUBLE_EQ(found->others_ms, 51);
  // Had it been as fast as rank 1 (52), each would have waited 68 ms less.
  EXPECT_NEAR(found->share_waited, (68.0 + 68 + 68) / (70 + 68 + 69), 1e-12);
}

TEST(Straggler, NobodyWhereAllAreAlikeOrAlone) {
  EXPECT_FALSE(find_straggler(std::vector<double>{50, 52, 55}, std::vector<double>{5, 3, 0}));
  EXPECT_FALSE(
      find_straggler(std::vector<double>{0.1, 0.5}, std::vector<double>{0.4, 0}));  // noise
  EXPECT_FALSE(find_straggler(std::vector<double>{50}, std::vector<double>{0}));
  // Two that are slow together hold up the rest: the slower one is named, and shares the blame.
  const auto two = find_straggler(std::vector<double>{10, 10, 10, 40, 41},
                                  std::vector<double>{31, 31, 31, 1, 0});
  ASSERT_TRUE(two);
  EXPECT_EQ(two->rank, 4);
  EXPECT_LT(two->share_waited, 0.1);
}

TEST(Straggler, IsSaidOnceItLastsAndThenNotEveryTime) {
  StragglerWatch watch({"a", "b"}, {.looks = 2, .repeat_after = 3});
  const std::vector<double> slow{100, 900};
  const std::vector<double> waited{800, 0};
  const std::vector<double> even{100, 101};
  EXPECT_EQ(watch.look(slow, waited, 10), "");
  const std::string line = watch.look(slow, waited, 10);
  EXPECT_THAT(line, HasSubstr("rank 1 on b holds the others up: busy 90.0 ms of each of the last 10"
                              " steps, the others 10.0 ms"));
  EXPECT_THAT(line, HasSubstr("100 % of their waiting"));
  EXPECT_EQ(watch.look(slow, waited, 10), "");
  EXPECT_EQ(watch.look(slow, waited, 10), "");
  EXPECT_NE(watch.look(slow, waited, 10), "");
  EXPECT_EQ(watch.look(even, waited, 10), "");
  EXPECT_EQ(watch.look(slow, waited, 10), "");
}

}  // namespace
}  // namespace sluice
