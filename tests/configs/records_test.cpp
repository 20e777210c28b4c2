// Lists of maps: their values, their mistakes, and their text.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"
#include "configs/reader.hpp"
#include "configs/reference.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

std::string refusal_of(const std::string& yaml) {
  const Scratch scratch;
  Scratch::write("c.yaml", yaml);
  try {
    (void)load_config("c.yaml", {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Records, ReadInTheFileOrderWithDefaultsOfFields) {
  const Scratch scratch;
  Scratch::write("c.yaml",
                 "data:\n"
                 "  blend:\n"
                 "    - path: a\n"
                 "      weight: 0.25\n"
                 "    - {path: b}\n");
  const LoadedConfig loaded = load_config("c.yaml", {});
  EXPECT_EQ(loaded.run.data.blend, (std::vector<BlendPart>{{"a", 0.25}, {"b", 1}}));
  EXPECT_EQ(loaded.place("data.blend"), "c.yaml:3:5");
  const LoadedConfig over = load_config("c.yaml", {"data.blend=[{weight: 3, path: c}]"});
  EXPECT_EQ(over.run.data.blend, (std::vector<BlendPart>{{"c", 3}})) << "replaced as a whole";
  EXPECT_EQ(load_config("c.yaml", {"data.blend=[]"}).run.data.blend, std::vector<BlendPart>{});
}

TEST(Records, VariablesFillFieldsAndReachTheOrigin) {
  const Scratch scratch;
  ASSERT_EQ(setenv("SLUICE_TEST_WEIGHT", "0.5", 1), 0);
  Scratch::write("c.yaml",
                 "data: {blend: [{path: a, weight: \"${SLUICE_TEST_WEIGHT}\"}, {path: b}]}\n");
  const LoadedConfig loaded = load_config("c.yaml", {});
  EXPECT_EQ(loaded.run.data.blend.at(0).weight, 0.5);
  EXPECT_EQ(loaded.origins.at("data.blend").variables,
            (std::vector<std::string>{"SLUICE_TEST_WEIGHT"}));
}

TEST(Records, AreWrittenWithEveryField) {
  const Scratch scratch;
  Scratch::write("c.yaml", "data: {blend: [{path: \"a: {b}, [c]\"}, {path: d, weight: 1e-3}]}\n");
  const LoadedConfig loaded = load_config("c.yaml", {});
  const Key& key = *find_key("data.blend");
  EXPECT_EQ(write_value(key.rules, key.get(loaded.run)),
            "[{path: \"a: {b}, [c]\", weight: 1}, {path: \"d\", weight: 0.001}]");
  Scratch::write("again.yaml", loaded.resolved_yaml());
  EXPECT_EQ(load_config("again.yaml", {}).run.data.blend, loaded.run.data.blend);
}

TEST(Records, EachMistakeHasItsPlace) {
  EXPECT_EQ(refusal_of("data: {blend: a}\n"),
            "c.yaml:1:15: data.blend: found 'a', expected a list, each a map of path, weight");
  EXPECT_EQ(refusal_of("data: {blend: {path: a}}\n"),
            "c.yaml:1:15: data.blend: found a map, expected a list, each a map of path, weight");
  EXPECT_EQ(refusal_of("data: {blend: [a, {path: b}, [c]]}\n"),
            "c.yaml:1:16: data.blend[0]: found 'a', expected a map of path, weight\n"
            "c.yaml:1:30: data.blend[2]: found a list, expected a map of path, weight");
  EXPECT_EQ(refusal_of("data: {blend: [~]}\n"),
            "c.yaml:1:15: data.blend[0]: found no value, expected a map of path, weight");
  EXPECT_EQ(refusal_of("data:\n  blend:\n    - {weight: 2}\n    - {path: a, weight: 0}\n"),
            "c.yaml:3:7: data.blend[0]: lacks 'path', expected a map of path, weight\n"
            "c.yaml:4:25: data.blend[1].weight: '0' is out of range, expected a number above 0");
  EXPECT_EQ(refusal_of("data: {blend: [{path: a, wieght: 2}]}\n"),
            "c.yaml:1:26: data.blend[0].wieght: unknown key; did you mean 'weight'?");
  EXPECT_EQ(refusal_of("data: {blend: [{path: a, xyzzy: 2}]}\n"),
            "c.yaml:1:26: data.blend[0].xyzzy: unknown key, expected one of path, weight");
  EXPECT_EQ(refusal_of("data: {blend: [{path: a, path: b}]}\n"),
            "c.yaml:1:26: data.blend[0].path: given twice, first in line 1");
  EXPECT_EQ(refusal_of("data: {blend: [{path: {a: b}}]}\n"),
            "c.yaml:1:23: data.blend[0].path: found a map, expected a path");
  EXPECT_EQ(refusal_of("data: {blend: [{path: }]}\n"),
            "c.yaml:1:17: data.blend[0].path: found no value, expected a path");
}

TEST(Records, TheReferenceNamesEachField) {
  EXPECT_NE(explain("data.blend").find("a list of maps: path (a path), weight (a number above 0;"),
            std::string::npos)
      << explain("data.blend");
}

}  // namespace
}  // namespace sluice::testing
