// Blends: shares at every moment, each sample once, ranks apart; validation sets, the test set, and
// text among Megatron files.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "runtime/data/blend_plan.hpp"
#include "runtime/data/eval_data.hpp"
#include "runtime/data/training_data.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Deviation {
  double greatest = 0;  // of a part's draws from draws x weight, over all moments
};

// Checks that each part numbers its draws 0, 1, 2, ... over the first draws.
Deviation deviation_of(const std::vector<double>& weights, std::int64_t draws) {
  const BlendPlan plan(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<std::int64_t> counts(weights.size());
  Deviation deviation;
  for (std::int64_t n = 0; n < draws; ++n) {
    const BlendDraw draw = plan.at(n);
    EXPECT_EQ(draw.index, counts[draw.part]) << "draw " << n;
    ++counts[draw.part];
    for (std::size_t p = 0; p < weights.size(); ++p) {
      const double wanted = static_cast<double>(n + 1) * weights[p] / sum;
      const double off = std::abs(static_cast<double>(counts[p]) - wanted);
      deviation.greatest = std::max(deviation.greatest, off);
    }
  }
  return deviation;
}

TEST(BlendPlan, SharesHoldAtEveryMoment) {
  EXPECT_LE(deviation_of({1}, 100).greatest, 0);
  EXPECT_LE(deviation_of({0.3, 0.7}, 5000).greatest, 0.5 + 1e-9);
  EXPECT_LE(deviation_of({5, 1, 1, 1}, 5000).greatest, 1 + 1e-9);
  EXPECT_LE(deviation_of({1e-6, 1, 1e6}, 5000).greatest, 1 + 1e-9);
  std::mt19937 random(1);
  for (const std::size_t parts : {2U, 3U, 7U, 16U, 100U}) {
    std::vector<double> weights(parts);
    for (double& weight : weights) weight = std::exp(static_cast<double>(random() % 1000) / 100);
    const double depth = std::ceil(std::log2(parts));
    EXPECT_LE(deviation_of(weights, 5000).greatest, depth / 2 + 1e-9) << parts << " parts";
  }
}

TEST(BlendPlan, RoundNumbersComeOutExactly) {
  const BlendPlan plan({30, 70});
  std::map<std::size_t, int> counts;
  for (std::int64_t n = 0; n < 1000; ++n) {
    ++counts[plan.at(n).part];
    if ((n + 1) % 10 == 0) {
      EXPECT_EQ(counts[0], 3 * (n + 1) / 10) << n;
    }
  }
}

TEST(BlendPlan, LateDrawsAreAsExact) {
  const BlendPlan plan({1, 2, 5});
  constexpr std::int64_t kLate = std::int64_t{8} << 56U;
  std::vector<std::int64_t> last(3, -1);
  for (std::int64_t n = kLate; n < kLate + 800; ++n) {
    const BlendDraw draw = plan.at(n);
    const double weight = draw.part == 0 ? 1 : draw.part == 1 ? 2 : 5;
    EXPECT_NEAR(static_cast<double>(draw.index) / static_cast<double>(n), weight / 8, 1e-12);
    if (last[draw.part] >= 0) {
      EXPECT_EQ(draw.index, last[draw.part] + 1);
    }
    last[draw.part] = draw.index;
  }
}

// A token says of which file it is, and where it lies there.
class Blend : public ::testing::Test {
 protected:
  std::string counting(const std::string& name, std::int64_t first, std::int64_t tokens,
                       std::int64_t documents = 1) {
    std::vector<std::vector<std::int64_t>> written(static_cast<std::size_t>(documents));
    for (std::int64_t i = 0; i < tokens; ++i) {
      written[static_cast<std::size_t>(i * documents / tokens)].push_back(first + i);
    }
    write_megatron<std::int32_t>(folder_ / name, 4, written);
    return folder_ / name;
  }
  DataOptions blend() {
    DataOptions options;
    options.blend = {{counting("a", 0, 101), 1}, {counting("b", 1000, 401), 3}};
    options.split = {1, 0};
    options.cache_dir = folder_ / "cache";
    return options;
  }
  TempFolder folder_;
};

std::vector<std::int64_t> firsts_of(const SampleRows& rows, std::size_t seq) {
  std::vector<std::int64_t> firsts;
  for (std::size_t i = 0; i < rows.tokens.size(); i += seq) firsts.push_back(rows.tokens[i]);
  return firsts;
}

TEST_F(Blend, EachPartHasEpochsOfItsOwn) {
  const TrainingData data(blend(), 10, 1);
  EXPECT_EQ(data.train_samples(), 50);
  std::map<std::int64_t, int> seen;
  SampleRows rows;
  // 160 draws: 40 of the 10 samples of a, 120 of the 40 samples of b.
  for (std::int64_t step = 1; step <= 20; ++step) {
    data.train_rows(step, 8, 0, 8, rows);
    const std::vector<std::int64_t> firsts = firsts_of(rows, 10);
    EXPECT_EQ(std::count_if(firsts.begin(), firsts.end(), [](auto t) { return t < 1000; }), 2);
    for (const std::int64_t first : firsts) ++seen[first];
    for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
      EXPECT_EQ(rows.targets[i], rows.tokens[i] + 1) << "a sample stays in its part";
    }
  }
  EXPECT_EQ(seen.size(), 50U);
  for (const auto& [first, times] : seen) EXPECT_EQ(times, first < 1000 ? 4 : 3) << first;
}

TEST_F(Blend, RowsAreAFunctionOfSeedAndStep) {
  const DataOptions options = blend();
  const TrainingData data(options, 10, 1), again(options, 10, 1), other(options, 10, 2);
  SampleRows whole, part, resumed;
  std::vector<std::int64_t> of_ranks;
  data.train_rows(7, 12, 0, 12, whole);
  for (std::int64_t rank = 0; rank < 4; ++rank) {  // each rank asks for its rows alone
    again.train_rows(7, 12, 3 * rank, 3, part);
    of_ranks.insert(of_ranks.end(), part.tokens.begin(), part.tokens.end());
  }
  EXPECT_EQ(of_ranks, whole.tokens);
  other.train_rows(7, 12, 0, 12, resumed);
  EXPECT_NE(resumed.tokens, whole.tokens);
  // Batches of 12 and of 4 go through the same draws.
  data.train_rows(3, 4, 0, 4, part);
  data.train_rows(1, 12, 8, 4, whole);
  EXPECT_EQ(part.tokens, whole.tokens);
}

TEST_F(Blend, EachPartIsSplit) {
  DataOptions options = blend();
  options.blend[0].path = counting("many", 0, 1000, 100);
  options.split = {80, 10, 10};
  const TrainingData data(options, 10, 1);
  EXPECT_EQ(data.valid_tokens(), 100 + 40);
  EXPECT_EQ(data.test_tokens(), 100 + 40);
  SampleRows rows;
  data.valid_rows(0, 400, 0, 400, rows);
  std::set<std::int64_t> seen;
  int of_a = 0;
  for (const std::int64_t first : firsts_of(rows, 10)) {
    seen.insert(first);
    of_a += first < 1000 ? 1 : 0;
  }
  EXPECT_EQ(of_a, 100) << "validation has the blend's shares";
  const auto streams = open_eval_streams(options, {}, EvalShare::kTest, 10);
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[1].name, "test share of " + folder_ / "b");
  std::vector<std::int64_t> test(40);
  streams[1].source->read(0, test);
  EXPECT_EQ(test[0], 1361) << "the end of b: its only document is cut";
  for (const std::int64_t token : test) EXPECT_FALSE(seen.contains(token));
}

// Each reading of a tokenizer logs a line.
TEST(EvalData, AShareAndValidationSetsReadTheTokenizerOnce) {
  const TempFolder folder;
  write_small_gpt2(folder.path());
  for (const char* name : {"a.txt", "b.txt"}) write_file(folder / name, "the text of a file");
  DataOptions options;
  options.text = {folder / "a.txt"};
  options.split = {50, 50};
  options.valid_sets = {{.name = "b", .path = {folder / "b.txt"}}};
  options.tokenizer = folder.path();
  options.cache_dir = folder / "cache";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(open_eval_streams(options, {}, EvalShare::kValidation, 4).size(), 2U);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("tokenizer ");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("tokenizer ", first + 1), std::string::npos) << said;
}

TEST_F(Blend, APartIsAlsoTheKeyOfAResume) {
  const DataOptions options = blend();
  const std::string before = TrainingData(options, 10, 1).fingerprint();
  EXPECT_EQ(TrainingData(options, 10, 2).fingerprint(), before);
  DataOptions heavier = options;
  heavier.blend[0].weight = 2;
  EXPECT_NE(TrainingData(heavier, 10, 1).fingerprint(), before);
  std::swap(heavier.blend[0], heavier.blend[1]);
  EXPECT_NE(TrainingData(heavier, 10, 1).fingerprint(), before);
}

TEST_F(Blend, TextAndTokensMix) {
  DataOptions options;
  write_file(folder_ / "text/a.jsonl", "{\"text\": \"hello\"}\n{\"text\": \"world\"}\n");
  options.blend = {{folder_ / "text", 1}, {counting("b", 0, 201), 1}};
  options.split = {1, 0};
  options.cache_dir = folder_ / "cache";
  const TrainingData data(options, 5, 1);
  EXPECT_EQ(data.vocab_size(), 257) << "the bytes tokenizer's";
  EXPECT_EQ(data.train().parts()[0].source->size(), 12);
  options.blend.clear();
  options.train = {folder_ / "text/*.jsonl", folder_ / "b"};
  EXPECT_EQ(TrainingData(options, 5, 1).train_tokens(), 213);
}

TEST_F(Blend, EpochsAreOfTheParts) {
  const TrainingData data(blend(), 10, 1);  // 10 and 40 samples, of which 20 and 60 are drawn
  EXPECT_THAT(logged_by([&] { log_epochs(data.train(), 10, 8); }),
              ElementsAre("data: 10 steps of 8 samples make 1.50 to 2 epochs of the parts"));
}

TEST_F(Blend, ValidationSetsHaveRowsOfTheirOwn) {
  DataOptions options = blend();
  options.valid = {counting("v", 2000, 51)};
  options.valid_sets = {{"code", {counting("c", 3000, 31)}},
                        {"prose", {folder_ / "c", counting("d", 4000, 21)}}};
  const TrainingData data(options, 10, 1);
  EXPECT_THAT(data.valid_sets(), ElementsAre("code", "prose"));
  SampleRows rows;
  data.set_rows(0, 0, 3, 0, 3, rows);
  std::vector<std::int64_t> firsts = firsts_of(rows, 10);
  std::sort(firsts.begin(), firsts.end());
  EXPECT_THAT(firsts, ElementsAre(3000, 3010, 3020));
  data.set_rows(1, 0, 5, 0, 5, rows);
  firsts = firsts_of(rows, 10);
  EXPECT_EQ(*std::max_element(firsts.begin(), firsts.end()), 4009);
  data.valid_rows(0, 5, 0, 5, rows);
  for (const std::int64_t first : firsts_of(rows, 10)) EXPECT_EQ(first / 1000, 2);
}

TEST_F(Blend, NamesThePartThatIsTooShort) {
  DataOptions options = blend();
  options.blend[0].path = counting("short", 0, 10);
  EXPECT_EQ(message_of([&] { TrainingData(options, 10, 1); }),
            "the training data of " + folder_ / "short" +
                " hold 10 tokens (validation has 0), but one sample of model.seq 10 needs 11; add "
                "text, lower model.seq or change data.split");
  options = blend();
  options.valid_sets = {{"code", {folder_ / "short"}}};
  EXPECT_THAT(message_of([&] { TrainingData(options, 10, 1); }),
              HasSubstr("data.valid_sets: code holds 10 tokens"));
  options = blend();
  options.train = {folder_ / "a"};
  EXPECT_THAT(message_of<ConfigError>([&] { TrainingData(options, 10, 1); }),
              HasSubstr("text, train, blend and sft exclude each other"));
  options = blend();
  options.blend[1].path = folder_ / "none";
  EXPECT_THAT(message_of([&] { TrainingData(options, 10, 1); }), HasSubstr("none.bin"));
}

}  // namespace
}  // namespace sluice::testing
