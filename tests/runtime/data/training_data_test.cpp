#include "runtime/data/training_data.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/failpoint.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class Training : public ::testing::Test {
 protected:
  // A Megatron file of the tokens 0, 1, 2, ...: a sample's first token tells which it is.
  DataOptions counting(std::int64_t tokens) {
    std::vector<std::int64_t> document(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<std::int64_t>(i);
    write_megatron<std::int32_t>(folder_ / "count", 4, {document});
    DataOptions options;
    options.train = {folder_ / "count"};
    options.split = {1, 0};
    options.cache_dir = folder_ / "cache";
    return options;
  }
  DataOptions text(const std::string& content) {
    write_file(folder_ / "t.txt", content);
    DataOptions options;
    options.text = {folder_ / "t.txt"};
    options.cache_dir = folder_ / "cache";
    return options;
  }
  TempFolder folder_;
};

TEST_F(Training, TargetsAreTheNextTokens) {
  const TrainingData data(counting(101), 10, 1);
  EXPECT_EQ(data.train_samples(), 10);
  EXPECT_EQ(data.vocab_size(), 101);
  EXPECT_EQ(data.tokenizer(), nullptr);
  SampleRows rows;
  data.train_rows(1, 10, 0, 10, rows);
  ASSERT_EQ(rows.tokens.size(), 100U);
  std::set<std::int64_t> firsts;
  for (std::size_t row = 0; row < 10; ++row) {
    firsts.insert(rows.tokens[row * 10]);
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(rows.tokens[row * 10 + i], rows.tokens[row * 10] + static_cast<std::int64_t>(i));
      EXPECT_EQ(rows.targets[row * 10 + i], rows.tokens[row * 10 + i] + 1);
    }
  }
  EXPECT_EQ(firsts.size(), 10U);
  EXPECT_EQ(*firsts.rbegin(), 90);  // its last target is the last token
}

TEST_F(Training, ASurveyReadsNoTextAndBuildsNoCache) {
  const DataOptions options = text(std::string(1000, 'x'));
  EXPECT_EQ(survey_data(options, 10, true), 257);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
  (void)TrainingData(options, 10, 1);
  EXPECT_EQ(survey_data(options, 10, true), 257);
  // The cache is there: what it holds is known.
  EXPECT_THAT(message_of([&] { (void)survey_data(options, 5000, true); }),
              HasSubstr("one sample of model.seq 5000"));
  std::filesystem::remove(folder_ / "t.txt");
  EXPECT_THAT(message_of([&] { (void)survey_data(options, 10, true); }),
              HasSubstr("no file matches"));
  EXPECT_THAT(message_of([&] { (void)survey_data(text(""), 10, true); }), HasSubstr("is empty"));
  DataOptions both = counting(101);
  EXPECT_EQ(survey_data(both, 10, false), 0);
  EXPECT_EQ(survey_data(both, 10, true), 101);
  const auto lines = logged_by([&] {
    (void)survey_data(both, 10, true, [](const SampleMix& train) { log_epochs(train, 23, 1); });
  });
  EXPECT_EQ(lines.back(), "data: 23 steps of 1 sample make 2.30 epochs");
  both.text = options.text;
  EXPECT_THAT(message_of<ConfigError>([&] { (void)survey_data(both, 10, true); }),
              HasSubstr("exclude each other"));
}

TEST_F(Training, TheFingerprintIsThatOfTheTokens) {
  const std::string content = "some words, and then some more of them to fill a sample or two";
  const std::string before = TrainingData(text(content), 10, 1).fingerprint();
  EXPECT_EQ(TrainingData(text(content), 10, 2).fingerprint(), before) << "not of the seed";
  DataOptions moved = text(content);
  write_file(folder_ / "moved.txt", content);
  moved.text = {folder_ / "moved.txt"};
  EXPECT_EQ(TrainingData(moved, 10, 1).fingerprint(), before);
  DataOptions cut = text(content);
  cut.split = {50, 50};
  EXPECT_NE(TrainingData(cut, 10, 1).fingerprint(), before);
  std::string changed = content;
  changed[20] = 'X';
  EXPECT_NE(TrainingData(text(changed), 10, 1).fingerprint(), before);
  EXPECT_NE(TrainingData(text(content + "."), 10, 1).fingerprint(), before);
}

// 100 tokens are one too few for the tenth sample of 10.
TEST_F(Training, SamplesThatFit) {
  EXPECT_EQ(TrainingData(counting(100), 10, 1).train_samples(), 9);
  EXPECT_EQ(TrainingData(counting(11), 10, 1).train_samples(), 1);
  EXPECT_THAT(
      message_of([&] { TrainingData(counting(10), 10, 1); }),
      HasSubstr("holds 10 tokens (validation has 0), but one sample of model.seq 10 needs 11"));
}

// 23 samples, global batch 6: an epoch ends inside a batch. Whatever dp is, the rows are the same,
// and over any 23 draws from an epoch's start each sample comes once.
TEST_F(Training, RowsAreDisjointOverDpAndEpochs) {
  const TrainingData data(counting(23 * 4 + 1), 4, 7);
  ASSERT_EQ(data.train_samples(), 23);
  std::vector<std::int64_t> draws;
  for (std::int64_t step = 1; step <= 23; ++step) {
    SampleRows global, part;
    data.train_rows(step, 6, 0, 6, global);
    for (const std::int64_t dp : {1, 2, 3, 6}) {
      SampleRows joined;
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        data.train_rows(step, 6, rank * (6 / dp), 6 / dp, part);
        joined.tokens.insert(joined.tokens.end(), part.tokens.begin(), part.tokens.end());
        joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      }
      EXPECT_EQ(joined.tokens, global.tokens);
      EXPECT_EQ(joined.targets, global.targets);
    }
    for (std::size_t row = 0; row < 6; ++row) draws.push_back(global.tokens[row * 4] / 4);
  }
  ASSERT_EQ(draws.size(), 6U * 23U);
  std::set<std::vector<std::int64_t>> orders;
  for (auto epoch = draws.begin(); epoch != draws.end(); epoch += 23) {
    orders.insert({epoch, epoch + 23});
    EXPECT_EQ(std::set<std::int64_t>(epoch, epoch + 23).size(), 23U);
  }
  EXPECT_EQ(orders.size(), 6U);
}

TEST_F(Training, SeedsAndNothingElseDecideTheOrder) {
  const DataOptions options = counting(1001);
  SampleRows a, b, c;
  TrainingData(options, 10, 1).train_rows(5, 8, 0, 8, a);
  TrainingData(options, 10, 1).train_rows(5, 8, 0, 8, b);
  TrainingData(options, 10, 2).train_rows(5, 8, 0, 8, c);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_NE(a.tokens, c.tokens);
  TrainingData(options, 10, 1).train_rows(5, 8, 3, 0, a);
  EXPECT_TRUE(a.tokens.empty());
}

TEST_F(Training, ValidationIsDisjointFixedAndWraps) {
  DataOptions options = counting(1000);
  options.split = {4, 1};
  const TrainingData data(options, 10, 1), other(options, 10, 2);
  EXPECT_EQ(data.train_tokens(), 800);
  EXPECT_EQ(data.valid_tokens(), 200);
  ASSERT_EQ(data.valid_samples(), 19);
  SampleRows rows, same, train;
  std::vector<std::int64_t> firsts;
  for (std::int64_t index = 0; index < 19; ++index) {
    data.valid_rows(index, 5, 0, 5, rows);
    other.valid_rows(index, 5, 2, 3, same);
    EXPECT_TRUE(std::equal(same.tokens.begin(), same.tokens.end(), rows.tokens.begin() + 20));
    for (std::size_t row = 0; row < 5; ++row) firsts.push_back(rows.tokens[row * 10]);
    EXPECT_GE(*std::min_element(rows.tokens.begin(), rows.tokens.end()), 800);
    data.train_rows(index + 1, 5, 0, 5, train);
    EXPECT_LT(*std::max_element(train.targets.begin(), train.targets.end()), 800);
  }
  EXPECT_EQ(std::set<std::int64_t>(firsts.begin(), firsts.begin() + 19).size(), 19U);
  for (std::size_t i = 19; i < firsts.size(); ++i) EXPECT_EQ(firsts[i], firsts[i - 19]);
}

TEST_F(Training, TextWithItsTokenizer) {
  std::string content;
  for (int i = 0; i < 100; ++i) content += "some words ";
  const TrainingData data(text(content), 16, 1);
  EXPECT_EQ(data.vocab_size(), 257);
  ASSERT_NE(data.tokenizer(), nullptr);
  EXPECT_EQ(data.train_tokens() + data.valid_tokens(), 1101);
  SampleRows rows;
  data.train_rows(1, 1, 0, 1, rows);
  const std::vector<std::int32_t> ids(rows.tokens.begin(), rows.tokens.end());
  EXPECT_NE(content.find(data.tokenizer()->decode(ids)), std::string::npos);
}

TEST_F(Training, ManyFilesSplitByFile) {
  for (int d = 0; d < 40; ++d) {
    write_file(folder_ / ("many/" + std::to_string(d) + ".txt"),
               std::string(99, static_cast<char>('0' + d)));
  }
  DataOptions options = text("");
  options.text = {folder_ / "many"};
  options.split = {90, 10};
  const TrainingData data(options, 99, 1);
  EXPECT_EQ(data.valid_tokens(), 400);
  EXPECT_EQ(data.train_tokens(), 3600);
  SampleRows train, valid;
  data.train_rows(1, data.train_samples(), 0, data.train_samples(), train);
  data.valid_rows(0, data.valid_samples(), 0, data.valid_samples(), valid);
  const std::set<std::int64_t> in_train(train.tokens.begin(), train.tokens.end());
  for (const std::int64_t token : valid.tokens)
    EXPECT_TRUE(token == 256 || in_train.count(token) == 0);
}

TEST_F(Training, TooLittleText) {
  EXPECT_THAT(message_of([&] { TrainingData(text("short"), 1000, 1); }),
              HasSubstr("but one sample of model.seq 1000 needs 1001; add text, lower model.seq"));
  EXPECT_THAT(message_of([&] { TrainingData(text(""), 8, 1); }), HasSubstr("t.txt is empty"));
  const TrainingData data(text("twenty bytes of text"), 8, 1);  // 21 tokens, of which one is kept
  EXPECT_THAT(logged_by([&] { TrainingData(text("twenty bytes of text"), 8, 1); }),
              Contains("data: the run does not validate on the share of data.split: its 1 "
                       "tokens hold no sample of model.seq 8; raise the share, or name "
                       "data.valid"));
  EXPECT_EQ(data.train_samples(), 2);
  EXPECT_EQ(data.valid_samples(), 0);
  SampleRows rows;
  EXPECT_THROW(data.valid_rows(0, 1, 0, 1, rows), Error);
  EXPECT_THROW(data.train_rows(0, 1, 0, 1, rows), Error);
  EXPECT_THROW(data.train_rows(1, 4, 2, 3, rows), Error);
}

// A run that names validation data and validates nothing would tell no one.
TEST_F(Training, NamedValidationIsOneSampleOrMore) {
  DataOptions options = counting(101);
  write_megatron<std::int32_t>(folder_ / "v", 4, {std::vector<std::int64_t>(10, 1)});
  options.valid = {folder_ / "v"};
  EXPECT_EQ(TrainingData(options, 9, 1).valid_samples(), 1);
  const std::string refused = "data.valid: " + folder_ / "v" +
                              " holds 10 tokens, but one sample of model.seq 10 needs 11; name "
                              "more text or lower model.seq";
  EXPECT_EQ(message_of([&] { TrainingData(options, 10, 1); }), refused);
  EXPECT_EQ(message_of([&] { (void)survey_data(options, 10, true); }), refused);
}

TEST_F(Training, SeveralPrefixesAreOneStream) {
  write_megatron<std::uint16_t>(folder_ / "a", 8, {{0, 1, 2}, {3, 4}});
  write_megatron<std::int32_t>(folder_ / "b", 4, {{5, 6, 7, 8}});
  write_megatron<std::uint8_t>(folder_ / "v", 1, {{200, 201, 202, 203, 204}});
  DataOptions options = counting(2);
  options.train = {folder_ / "a", folder_ / "b.idx"};
  options.valid = {folder_ / "v.bin"};
  const TrainingData data(options, 2, 1);
  EXPECT_EQ(data.vocab_size(), 205);
  EXPECT_EQ(data.train_samples(), 4);
  EXPECT_EQ(data.valid_samples(), 2);
  SampleRows rows;
  data.train_rows(1, 4, 0, 4, rows);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(rows.targets[i], rows.tokens[i] + 1);
  data.valid_rows(0, 2, 0, 2, rows);
  EXPECT_GE(*std::min_element(rows.tokens.begin(), rows.tokens.end()), 200);
}

TEST_F(Training, TokensOutsideTheVocabulary) {
  write_small_gpt2(folder_ / "gpt2");
  DataOptions options = counting(1000);
  options.tokenizer = folder_ / "gpt2";
  const TrainingData data(options, 10, 1);
  EXPECT_EQ(data.vocab_size(), kSmallEndOfText + 1);
  SampleRows rows;
  EXPECT_THAT(message_of([&] { data.train_rows(1, 90, 0, 90, rows); }),
              HasSubstr("outside the vocabulary of 269"));
  write_megatron<std::int32_t>(folder_ / "minus", 4, {{1, -1, 2}});
  options.train = {folder_ / "minus"};
  options.tokenizer = "bytes";
  EXPECT_THAT(message_of([&] { TrainingData(options, 1, 1); }), HasSubstr("the negative token -1"));
}

TEST_F(Training, OptionsThatDoNotGoTogether) {
  const auto fails = [&](DataOptions options) {
    return message_of<ConfigError>([&] { TrainingData(options, 4, 1); });
  };
  EXPECT_THAT(fails({}), HasSubstr("nothing to train on"));
  DataOptions both = counting(100);
  both.text = {"x"};
  EXPECT_THAT(fails(both), HasSubstr("exclude each other"));
  for (const std::vector<double>& split : std::vector<std::vector<double>>{
           {}, {1}, {1, 2, 3, 4}, {0, 0}, {-1, 2}, {std::nan(""), 1}}) {
    DataOptions options = counting(100);
    options.split = split;
    EXPECT_THAT(fails(options), HasSubstr("data.split: expected two or three shares"));
  }
  DataOptions all_valid = counting(100);
  all_valid.split = {0, 1};
  EXPECT_THAT(message_of([&] { TrainingData(all_valid, 4, 1); }), HasSubstr("holds 0 tokens"));
}

TEST_F(Training, ReadsPassTheFailpoint) {
  const TrainingData data(counting(100), 4, 1);
  SampleRows rows;
  arm_failpoints("data.read@2:error");
  EXPECT_NO_THROW(data.train_rows(1, 4, 0, 4, rows));
  EXPECT_THROW(data.train_rows(2, 4, 0, 4, rows), Error);
  arm_failpoints("");
}

}  // namespace
}  // namespace sluice::testing
