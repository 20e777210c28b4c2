// data.tokenizer: bpe:N.
#include "runtime/data/tokenizer/learned_tokenizer.hpp"

#include <filesystem>
#include <thread>

#include "runtime/data/data_sets.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/training_data.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LearnedTokenizer : public ::testing::Test {
 protected:
  LearnedTokenizer() { write_file(folder_ / "t.txt", random_text(3000, 3, false)); }

  LearnRequest request(std::int64_t vocab) {
    return {.text = {folder_ / "t.txt"}, .vocab_size = vocab, .cache_dir = folder_ / "cache"};
  }
  DataOptions options(const std::string& tokenizer) {
    DataOptions data;
    data.text = {folder_ / "t.txt"};
    data.split = {1, 0};
    data.tokenizer = tokenizer;
    data.cache_dir = folder_ / "cache";
    return data;
  }
  TempFolder folder_;
};

TEST_F(LearnedTokenizer, IsLearnedAtItsFirstUseAndKept) {
  const std::string kept = learn_tokenizer(request(300));
  EXPECT_EQ(kept, learned_tokenizer_folder(request(300)));
  EXPECT_EQ(make_tokenizer(kept)->vocab_size(), 300);
  EXPECT_FALSE(fs::exists(kept + ".part"));
  const auto written = fs::last_write_time(kept + "/merges.txt");
  EXPECT_EQ(learn_tokenizer(request(300)), kept);
  EXPECT_EQ(fs::last_write_time(kept + "/merges.txt"), written);
}

TEST_F(LearnedTokenizer, AnotherSizeOrTextHasAnotherFolder) {
  const std::string folder = learned_tokenizer_folder(request(300));
  EXPECT_NE(learned_tokenizer_folder(request(301)), folder);
  write_file(folder_ / "t.txt", "another text");
  EXPECT_NE(learned_tokenizer_folder(request(300)), folder);
}

TEST_F(LearnedTokenizer, AKilledProcessLeavesNothingInTheWay) {
  const std::string folder = learned_tokenizer_folder(request(300));
  fs::create_directories(folder + ".part");
  write_file(folder + ".part/vocab.json", "{");
  EXPECT_EQ(make_tokenizer(learn_tokenizer(request(300)))->vocab_size(), 300);
}

TEST_F(LearnedTokenizer, OneOfSeveralLearns) {
  std::vector<std::string> folders(4);
  std::vector<std::thread> threads;
  for (std::string& folder : folders) {
    threads.emplace_back([&] { folder = learn_tokenizer(request(400)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& folder : folders) EXPECT_EQ(folder, folders[0]);
  EXPECT_EQ(make_tokenizer(folders[0])->vocab_size(), 400);
}

TEST_F(LearnedTokenizer, TooLittleTextIsAnErrorThatSaysTheSize) {
  write_file(folder_ / "t.txt", "abc\nabc\nabc\nab x\nab x\n");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)learn_tokenizer(request(300)); }),
            "data.tokenizer: bpe:300: the training text has pairs for 260 ids only; write bpe:260, "
            "or add text");
  EXPECT_FALSE(fs::exists(learned_tokenizer_folder(request(300))));
  EXPECT_EQ(make_tokenizer(learn_tokenizer(request(260)))->vocab_size(), 260);
}

TEST_F(LearnedTokenizer, TrainingDataLearnAndASurveyWritesNothing) {
  EXPECT_EQ(survey_data(options("bpe:320"), 8, true), 320);
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
  const TrainingData data(options("bpe:320"), 8, 1);
  EXPECT_EQ(data.vocab_size(), 320);
  EXPECT_EQ(tokenizer_spec_of(options("bpe:320")), learned_tokenizer_folder(request(320)));
  EXPECT_EQ(tokenizer_spec_of(options("bytes")), "bytes");
  EXPECT_EQ(survey_data(options("bpe:320"), 8, true), 320);
}

TEST_F(LearnedTokenizer, ABlendLearnsFromTheTextOfAllParts) {
  write_file(folder_ / "u.txt", "zq zq zq zq zq");
  DataOptions blend = options("bpe:300");
  blend.text.clear();
  blend.blend = {{.path = folder_ / "t.txt"}, {.path = folder_ / "u.txt"}};
  LearnRequest both = request(300);
  both.text = {folder_ / "t.txt", folder_ / "u.txt"};
  EXPECT_EQ(tokenizer_spec_of(blend), learned_tokenizer_folder(both));
}

TEST_F(LearnedTokenizer, WrongUsesAreRefused) {
  const auto fails = [&](const DataOptions& data) {
    return message_of<ConfigError>([&] { TrainingData(data, 4, 1); });
  };
  EXPECT_EQ(fails(options("bpe:256")),
            "data.tokenizer: expected bpe:N with N from 257 to 1048576, found 'bpe:256'");
  EXPECT_THAT(fails(options("bpe:4k")), HasSubstr("found 'bpe:4k'"));
  write_megatron<std::uint16_t>(folder_ / "tokens", 8, {{1, 2, 3, 4, 5, 6}});
  DataOptions tokens = options("bpe:300");
  tokens.text.clear();
  tokens.train = {folder_ / "tokens"};
  EXPECT_EQ(fails(tokens),
            "data.tokenizer: bpe:300 is learned from the training text, and the training data are "
            "tokens; name their tokenizer");
  EXPECT_THAT(message_of<ConfigError>([] { (void)make_tokenizer("bpe:300"); }),
              HasSubstr("is learned by a training run from its text"));
}

}  // namespace
}  // namespace sluice::testing
