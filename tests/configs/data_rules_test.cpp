// Rules between the keys of `data`.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "configs/validate.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

class DataRules : public ::testing::Test {
 protected:
  // What validate() says of this text; empty where it is content.
  std::string complaint(const std::string& yaml, int world) {
    scratch_.write("c.yaml", yaml);
    try {
      validate(load_config("c.yaml", {}), world);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  Scratch scratch_;
};

TEST_F(DataRules, OneSourceSharesAndNamesOfSets) {
  EXPECT_EQ(complaint("train: {steps: 5}\n", 1),
            "c.yaml (default): data.text: one of data.text, data.train, data.blend and data.sft "
            "must name "
            "what to train on");
  EXPECT_EQ(complaint("data: {text: a.txt, train: [b]}\n", 1),
            "c.yaml:1:28: data.train: only one of data.text and data.train may be given");
  EXPECT_EQ(complaint("data: {text: a.txt, split: [0, 5]}\n", 1),
            "c.yaml:1:28: data.split: the share of training must be above 0: 0 of 5");
  EXPECT_EQ(complaint("data: {blend: [{path: a}], split: [8, 1, 1]}\n", 1), "");
  EXPECT_EQ(
      complaint("data: {text: a.txt, blend: [{path: b}]}\n", 1),
      "c.yaml:1:28: data.blend: only one of data.text, data.train and data.blend may be given");
  EXPECT_EQ(complaint("data: {sft: [{path: a, format: alpaca}], train_on: last}\n", 1), "");
  EXPECT_EQ(complaint("data: {text: a.txt, sft: [{path: b}]}\n", 1),
            "c.yaml:1:26: data.sft: data.text, data.train and data.blend may not be given as well");
  EXPECT_EQ(
      complaint("data: {train: a, valid_sets: [{name: x, path: b}, {name: x, path: []}]}\n", 1),
      "c.yaml:1:30: data.valid_sets: two sets have the name 'x'\n"
      "c.yaml:1:30: data.valid_sets: 'x' names no path");
}

TEST_F(DataRules, ALearnedTokenizerHasASize) {
  EXPECT_EQ(complaint("data: {text: a.txt, tokenizer: bpe:300}\n", 1), "");
  EXPECT_EQ(complaint("data: {text: a.txt, tokenizer: bpe:12}\n", 1),
            "c.yaml:1:32: data.tokenizer: expected bpe:N with N from 257 to 1048576, found "
            "'bpe:12'");
  EXPECT_EQ(complaint("data: {text: a.txt, tokenizer: \"bpe:4k\"}\n", 1),
            "c.yaml:1:32: data.tokenizer: expected bpe:N with N from 257 to 1048576, found "
            "'bpe:4k'");
}

}  // namespace
}  // namespace sluice::testing
