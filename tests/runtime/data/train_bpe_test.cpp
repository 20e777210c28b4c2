#include "runtime/data/tokenizer/train_bpe.hpp"

#include <filesystem>

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class TrainBpe : public ::testing::Test {
 protected:
  BpeTrainResult train(const std::string& text, std::int64_t vocab_size,
                       std::int64_t min_count = 2) {
    write_file(folder_ / "t.txt", text);
    BpeTrainOptions options;
    options.text = {folder_ / "t.txt"};
    options.vocab_size = vocab_size;
    options.min_count = min_count;
    options.out_dir = folder_ / "out";
    std::filesystem::remove_all(options.out_dir);
    return train_bpe(options);
  }
  std::string merges() { return read_file(folder_ / "out/merges.txt"); }
  TempFolder folder_;
};

// By hand: "ab" comes 5 times (3 + 2), then "abc" 3 (ab, c), then " x" 2.
TEST_F(TrainBpe, MergesTheMostFrequentPairFirst) {
  train("abc\nabc\nabc\nab x\nab x\n", 256 + 3 + 1);
  EXPECT_EQ(merges(), "#version: 0.2\na b\nab c\n\u0120 x\n");
}

// "xyx" + "yxy": xy and yx both come twice; x (88 - 33 in GPT-2's numbering) is before y.
TEST_F(TrainBpe, EqualsGoByTheirIds) {
  train("xyx yxy", 256 + 1 + 1);
  EXPECT_EQ(merges(), "#version: 0.2\nx y\n");
}

TEST_F(TrainBpe, LearnsFromTheTextOfJsonLines) {
  write_file(folder_ / "t.jsonl", "{\"body\": \"abc\", \"id\": \"ididid\"}\n{\"body\": \"ab\"}\n");
  BpeTrainOptions options;
  options.text = {folder_ / "t.jsonl"};
  options.json_key = "body";
  options.vocab_size = 300;
  options.out_dir = folder_ / "out";
  train_bpe(options);
  EXPECT_EQ(merges(), "#version: 0.2\na b\n");
}

TEST_F(TrainBpe, OverlappingPairsAreCountedAsTheyMerge) {
  train("aaaa\naaaa", 256 + 2 + 1);
  EXPECT_EQ(merges(), "#version: 0.2\na a\naa aa\n");
}

TEST_F(TrainBpe, WhatIsLearnedIsATokenizer) {
  const std::string text = random_text(3000, 3, false);
  const BpeTrainResult result = train(text, 400);
  const auto tokenizer = make_tokenizer(folder_ / "out");
  EXPECT_EQ(tokenizer->vocab_size(), result.vocab_size);
  EXPECT_EQ(tokenizer->end_of_text(), result.vocab_size - 1);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode(text).size(), text.size() / 2);
  const std::string before = merges();
  train(text, 400);
  EXPECT_EQ(merges(), before);
}

TEST_F(TrainBpe, ATokenizerThatIsThereStays) {
  train("abcabc", 300, 1);
  const std::string before = merges();
  BpeTrainOptions options;
  options.text = {folder_ / "t.txt"};
  options.vocab_size = 258;
  options.out_dir = folder_ / "out";
  EXPECT_THAT(message_of<ConfigError>([&] { train_bpe(options); }),
              HasSubstr("out/vocab.json is there already"));
  EXPECT_EQ(merges(), before);
}

TEST_F(TrainBpe, StopsWhereNothingRepeats) {
  EXPECT_EQ(train("abcd", 1000).vocab_size, 257);
  EXPECT_EQ(train("abcd", 1000, 1).merges, 3);
  EXPECT_THAT(message_of<ConfigError>([&] { train("abcd", 256); }), HasSubstr("vocabulary of 256"));
}

TEST_F(TrainBpe, ATextWithoutAWordGivesNoTokenizer) {
  EXPECT_THAT(message_of<IoError>([&] { train("", 300); }),
              HasSubstr("t.txt: all are empty or without text"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace sluice::testing
