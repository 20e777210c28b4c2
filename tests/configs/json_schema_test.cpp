// The JSON Schema says what the reader does.
#include "configs/json_schema.hpp"

#include <gtest/gtest.h>
#include <regex.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

TEST(JsonSchema, ListsEveryKeyWithItsDefault) {
  const Json root = Json::parse(json_schema());
  EXPECT_EQ(root["$schema"].dump(), "\"https://json-schema.org/draft/2020-12/schema\"");
  EXPECT_EQ(root["additionalProperties"].dump(), "false");
  EXPECT_TRUE(root["properties"].contains("base"));
  EXPECT_EQ(root["properties"].size(), schema().size() + 1);
  for (const Section& section : schema()) {
    const Json& here = root["properties"][std::string(section.name)];
    EXPECT_EQ(here["additionalProperties"].dump(), "false");
    EXPECT_EQ(here["properties"].size(), section.keys.size());
    for (const Key& key : section.keys) {
      const Json& property = here["properties"][std::string(key.name)];
      EXPECT_EQ(property["description"].get<std::string>(), key.doc);
      EXPECT_TRUE(property.contains("default")) << key.path();
    }
  }
  const Json& zero = root["properties"]["zero"]["properties"];
  EXPECT_EQ(zero["stage"]["default"].dump(), "1");
  EXPECT_EQ(zero["stage"]["anyOf"][0].dump(), R"({"maximum":3,"minimum":0,"type":"integer"})");
  EXPECT_EQ(zero["reduce_every"]["anyOf"][0]["enum"].dump(), R"(["micro_batch","step"])");
  EXPECT_EQ(root["properties"]["parallel"]["properties"]["data"]["default"].dump(), "\"auto\"");
}

TEST(JsonSchema, EveryReferenceIsDefined) {
  const std::string text = json_schema();
  const Json root = Json::parse(text);
  const std::string mark = "#/$defs/";
  int found = 0;
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    at += mark.size();
    EXPECT_TRUE(root["$defs"].contains(text.substr(at, text.find('"', at) - at)));
    ++found;
  }
  EXPECT_GT(found, 20);
}

// The schema's patterns keep to what POSIX and ECMA 262 read alike.
class Pattern {
 public:
  explicit Pattern(const std::string& text) {
    if (regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
      throw std::runtime_error(text);
    }
  }
  ~Pattern() { regfree(&compiled_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  [[nodiscard]] bool matches(const std::string& text) const {
    return regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t compiled_{};
};

// What an editor accepts by the patterns is what the reader accepts.
class Patterns : public ::testing::Test {
 protected:
  void expect_agreement(const char* definition, KeyType type, const std::vector<std::string>& good,
                        const std::vector<std::string>& bad) {
    const Pattern pattern(definitions_[definition]["pattern"].get<std::string>());
    Rules rules;
    rules.type = type;
    rules.range.min = 0;
    for (const std::string& text : good) {
      EXPECT_TRUE(pattern.matches(text)) << text;
      EXPECT_TRUE(std::holds_alternative<Value>(read_scalar(rules, text))) << text;
    }
    for (const std::string& text : bad) {
      EXPECT_FALSE(pattern.matches(text)) << text;
      EXPECT_FALSE(std::holds_alternative<Value>(read_scalar(rules, text))) << text;
    }
  }

  Json definitions_ = Json::parse(json_schema())["$defs"];
};

TEST_F(Patterns, OfCounts) {
  expect_agreement("count", KeyType::kCount, {"12", "50k", "1e9", "1_000", "2B", "1.5M"},
                   {"k", "-1", "1 thousand", "0x10", "1e", "", "ten"});
}
TEST_F(Patterns, OfSizes) {
  expect_agreement("size", KeyType::kBytes,
                   {"24GiB", "512MiB", "1.5 GB", "4096", "1e9", "1TiB", "16B"},
                   {"24Gigs", "GiB", "-1", "", "1 iB", "5 %"});
}
TEST_F(Patterns, OfTimes) {
  expect_agreement("time", KeyType::kSeconds, {"600", "30s", "5m", "2h", "1.5h", "1e2"},
                   {"5min", "s", "", "m5", "5 m"});
}
TEST_F(Patterns, OfShares) {
  expect_agreement("share", KeyType::kSteps, {"5%", "6.25%", "1e-1%", "100%"},
                   {"%", "5 %", "-5%", ".5%", "5%%"});
  expect_agreement("count", KeyType::kSteps, {"500", "1k", "0"}, {});
}
TEST_F(Patterns, OfRates) {
  expect_agreement("share", KeyType::kRate, {"5%", "0.01%", "1e-1%", "100%"},
                   {"%", "5 %", "-5%", ".5%", "5%%"});
}
TEST_F(Patterns, OfIntervals) {
  expect_agreement("interval", KeyType::kInterval, {"30s", "30min", "30m", "1.5h"},
                   {"min", "-5min", "", "5 min", "5days"});
  expect_agreement("count", KeyType::kInterval, {"500", "1k", "0"}, {});
}

}  // namespace
}  // namespace sluice::testing
