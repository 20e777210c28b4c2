// Which image version the ranks of a run take (runtime/engine/image_choice.hpp).
#include "runtime/engine/image_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

TEST(ImageChoices, TakeTheNewestStepThatAllHave) {
  const auto rank = [](const std::string& id, const std::vector<std::int64_t>& steps) {
    FoundImage found;
    found.id = id;
    for (const std::int64_t step : steps) {
      ImageVersion version;
      version.step = step;
      found.versions.push_back(version);
    }
    return found;
  };
  const FoundImage nothing;
  FoundImage damaged;
  damaged.problem = "it is damaged";
  EXPECT_EQ(choose_image({rank("a", {6, 5}), rank("a", {6, 5})}, -1).step, 6);
  EXPECT_EQ(choose_image({rank("a", {6, 5}), rank("a", {5, 4})}, 4).step, 5);
  EXPECT_EQ(choose_image({rank("a", {5, 4}), rank("a", {6, 5})}, 4).step, 5);
  EXPECT_EQ(choose_image({rank("a", {6, 5}), rank("a", {5})}, 5).step, 5) << "nothing is lost";
  const ImageChoice older = choose_image({rank("a", {6, 5}), rank("a", {5})}, 6);
  EXPECT_EQ(older.step, -1);
  EXPECT_TRUE(older.is_older);
  for (const auto& [ranks, why] :
       {std::pair(std::vector{rank("a", {6, 5}), rank("a", {4, 3})}, "no committed step"),
        std::pair(std::vector{rank("a", {6}), rank("b", {6})}, "rank 1: its swap files are of run"),
        std::pair(std::vector{rank("a", {6}), nothing}, "rank 1: its swap files are gone"),
        std::pair(std::vector{nothing, rank("a", {6})}, "rank 0: its swap files are gone"),
        std::pair(std::vector{rank("a", {6}), damaged}, "rank 1: it is damaged")}) {
    const ImageChoice choice = choose_image(ranks, -1);
    EXPECT_EQ(choice.step, -1);
    EXPECT_FALSE(choice.is_older);
    EXPECT_THAT(choice.why_not, HasSubstr(why));
  }
  EXPECT_EQ(choose_image({nothing, nothing}, -1).why_not, "");
  FoundImage had_begun;
  had_begun.begun = true;
  const ImageChoice begun = choose_image({rank("a", {1}), had_begun}, -1);
  EXPECT_EQ(begun.step, -1);
  EXPECT_TRUE(begun.had_begun);
}

// A rank that has committed nothing is no start of a run where another one has committed twice.
TEST(ImageChoices, NothingOnOneRankIsALossWhereAnotherHasMoreThanItsFirstCommit) {
  FoundImage first;
  first.id = "a";
  first.versions = {{.step = 0, .place = 0, .state = "", .commits = 1}};
  FoundImage further = first;
  further.versions.insert(further.versions.begin(),
                          {.step = 1, .place = 1, .state = "", .commits = 2});
  FoundImage blank;
  blank.begun = true;
  const FoundImage nothing;
  for (const auto& other : {blank, nothing}) {
    EXPECT_TRUE(choose_image({first, blank, other}, -1).had_begun);
    const ImageChoice lost = choose_image({first, other, blank, further}, -1);
    EXPECT_FALSE(lost.had_begun);
    EXPECT_THAT(lost.why_not, HasSubstr("nothing is committed in its swap files, and rank 3 has "
                                        "step 1"));
  }
  FoundImage damaged;
  damaged.problem = "its header is damaged";
  const ImageChoice refused = choose_image({blank, damaged}, -1);
  EXPECT_FALSE(refused.had_begun);
  EXPECT_EQ(refused.why_not, "rank 1: its header is damaged");
}

}  // namespace
}  // namespace sluice::testing
