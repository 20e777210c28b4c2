// Thousands of damaged configurations, the same on every run: each loads, or ends in a ConfigError.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "configs/json_schema.hpp"
#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/validate.hpp"
#include "configs/value.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

const std::vector<std::string> kSeeds{
    "base: b.yaml\n"
    "model: {type: gpt2, layers: 4, hidden: 256, heads: 4, seq: 256, dropout: 0.1}\n"
    "data:\n  text:\n    - \"src/**/*.py\"\n    - other.txt\n  split: [95, 5]\n"
    "train:\n  steps: 1e3\n  micro_batch: 4\n  global_batch: 16\n  dtype: bf16  # comment\n"
    "zero: {stage: 3, bucket_bytes: 25MiB}\n"
    "launch:\n  timeout: 5m\n  nproc: 2\n",
    "output: {dir: \"${SLUICE_TEST_HOME:-runs}/x\", trace: true}\n"
    "optimizer:\n  betas: &b\n  - 0.9\n  - 0.95\n  lr: 3e-4\n"
    "data: {split: *b, text: 'it''s'}\n"
    "schedule: {type: wsd, warmup_steps: 10, wsd_decay: 100}\n"
    "checkpoint:\n  dir: |\n    some\n    text\n  async: false\n",
};

// Pieces on which readers of YAML and of numbers trip.
const std::vector<std::string> kPieces{"{",
                                       "}",
                                       "[",
                                       "]",
                                       ":",
                                       ": ",
                                       "- ",
                                       "? ",
                                       "&a ",
                                       "*a",
                                       "!t ",
                                       "!!int ",
                                       "|\n",
                                       ">-",
                                       "\"",
                                       "'",
                                       "\\",
                                       "#",
                                       " #",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "\n\t",
                                       "  ",
                                       "---\n",
                                       "...\n",
                                       "%YAML 1.2\n",
                                       "%",
                                       "@",
                                       "`",
                                       ",",
                                       "<<: ",
                                       "~",
                                       "null",
                                       "${",
                                       "${A",
                                       "}${",
                                       "$${",
                                       "${A:-",
                                       "-1",
                                       "1e999",
                                       ".nan",
                                       ".inf",
                                       "nan",
                                       "inf",
                                       "0x1",
                                       "1e-999",
                                       "99999999999999999999",
                                       "auto",
                                       "none",
                                       "true",
                                       "GiB",
                                       "k",
                                       "base: c.yaml\n",
                                       "base: .\n",
                                       "zero:\n",
                                       "stage: ",
                                       "\x04",
                                       "\xff",
                                       "\xc3\xa9",
                                       "\xef\xbb\xbf",
                                       "\x7f",
                                       std::string(1, '\0'),
                                       "=",
                                       "\xed\xa0\x80",
                                       "\\x00",
                                       "\\ud800"};

std::string mutated(std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  std::string text = kSeeds[below(kSeeds.size())];
  const std::size_t edits = 1 + below(4);
  for (std::size_t i = 0; i < edits; ++i) {
    const std::size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      case 3:
        text.replace(at, below(6), kPieces[below(kPieces.size())]);
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(random() % 256);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

class Mutation : public ::testing::Test {
 protected:
  void SetUp() override { Scratch::write("b.yaml", "zero: {stage: 1}\n"); }

  // Loads, and where that works resolves, loads again and validates.
  void survives(const std::vector<std::string>& sets) {
    try {
      const LoadedConfig loaded = load_config("c.yaml", sets);
      ++loaded_;
      const std::string resolved = loaded.resolved_yaml();
      Scratch::write("resolved.yaml", resolved);
      const LoadedConfig again = load_config("resolved.yaml", {});
      for (const Section& section : schema()) {
        for (const Key& key : section.keys) {
          EXPECT_EQ(key.get(again.run), key.get(loaded.run)) << key.path() << "\n" << resolved;
        }
      }
      validate(loaded, 2);
    } catch (const ConfigError& error) {
      ++refused_;
      const std::string what = error.what();
      EXPECT_FALSE(what.empty());
      EXPECT_EQ(what.find('\0'), std::string::npos);
      EXPECT_EQ(what.find("internal"), std::string::npos) << what;
    }
  }

  Scratch scratch_;
  int loaded_ = 0;
  int refused_ = 0;
};

TEST_F(Mutation, OfFiles) {
  std::mt19937 random(20240607);
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    const std::string text = mutated(random);
    SCOPED_TRACE(text);
    Scratch::write("c.yaml", text);
    survives({});
  }
  // Both ways are really exercised.
  EXPECT_GT(loaded_, 100);
  EXPECT_GT(refused_, 1000);
}

TEST_F(Mutation, OfOverrides) {
  Scratch::write("c.yaml", "data: {text: a.txt}\n");
  std::mt19937 random(77);
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const auto& section = schema()[random() % schema().size()];
    const Key& key = section.keys[random() % section.keys.size()];
    std::string set = key.path() + "=";
    for (std::size_t pieces = random() % 4; pieces > 0; --pieces) {
      set += kPieces[random() % kPieces.size()];
    }
    if (random() % 4 == 0) set.resize(random() % (set.size() + 1));
    SCOPED_TRACE(set);
    survives({set});
  }
  EXPECT_GT(refused_, 1000);
}

}  // namespace
}  // namespace sluice::testing
