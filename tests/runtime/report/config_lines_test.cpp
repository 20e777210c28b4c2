#include <gtest/gtest.h>

#include "runtime/report/run_config_lines.hpp"

namespace sluice {
namespace {

TEST(ConfigLines, KeysValuesAndOrigins) {
  const auto lines = parse_config_lines(
      "model:\n"
      "  type: gpt2                    # tiny.yaml:1:9\n"
      "data:\n"
      "  text: [\"a # b.txt\", 'c:d']   # folder #2/tiny.yaml:2:9 $HOME\n"
      "train:\n"
      "  steps: 30\n"
      "# a remark: of nobody\n"
      "\n");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].key, "model.type");
  EXPECT_EQ(lines[0].value, "gpt2");
  EXPECT_EQ(lines[0].origin, "tiny.yaml:1:9");
  EXPECT_EQ(lines[1].value, "[\"a # b.txt\", 'c:d']");
  EXPECT_EQ(lines[1].origin, "folder #2/tiny.yaml:2:9 $HOME");
  EXPECT_EQ(lines[2].key, "train.steps");
  EXPECT_EQ(lines[2].origin, "");
  EXPECT_TRUE(parse_config_lines("").empty());
  EXPECT_TRUE(parse_config_lines("\xff\xfe:::::").empty());
}

TEST(ConfigLines, OnlyWhatDiffers) {
  const auto a = parse_config_lines("train:\n  steps: 30  # a:1\n  seed: 1  # default\n");
  const auto b = parse_config_lines("train:\n  steps: 40  # b:1\n  seed: 1  # --set\n  ema: 2\n");
  const std::vector<ConfigRow> rows = compare_configs({a, {}, b});  // the second run has no file
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_TRUE(rows[0].differs);
  EXPECT_EQ(rows[0].of[2].value, "40");
  EXPECT_EQ(rows[0].of[1].key, "");
  EXPECT_FALSE(rows[1].differs);  // another origin, the same value
  EXPECT_TRUE(rows[2].differs);   // a key that an older version does not know
  EXPECT_EQ(rows[2].of[0].key, "");
  EXPECT_FALSE(compare_configs({a})[0].differs);
}

}  // namespace
}  // namespace sluice
