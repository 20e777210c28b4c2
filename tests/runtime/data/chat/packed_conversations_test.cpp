#include "runtime/data/chat/packed_conversations.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/data/eval_data.hpp"
#include "runtime/data/training_data.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/chat/chat_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string completion_line(const std::string& prompt, const std::string& completion) {
  return R"({"prompt":")" + prompt + R"(","completion":")" + completion + "\"}\n";
}

char letter(std::size_t i) { return "ABCDEFGHIJKLMNOPQRSTUVWXYabcdefghijklmnopqrstuvwxy"[i % 50]; }

class Sft : public ::testing::Test {
 protected:
  DataOptions options(const std::string& content) {
    write_file(folder_ / "talks.jsonl", content);
    DataOptions result;
    result.sft = {{.path = folder_ / "talks.jsonl"}};
    result.split = {1, 0};
    result.cache_dir = folder_ / "cache";
    return result;
  }
  // Conversation i is the letter i, `lengths[i] - 1` times: half of it the prompt.
  DataOptions of_lengths(const std::vector<int>& lengths) {
    std::string content;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<std::size_t>(lengths[i]) - 1;
      content += completion_line(std::string(length / 2, letter(i)),
                                 std::string(length - length / 2, letter(i)));
    }
    return options(content);
  }

  TempFolder folder_;
};

TEST_F(Sft, ARowHoldsConversationsAndTheirLearnedTargets) {
  const TrainingData data(options(completion_line("ab", "cd") + completion_line("x", "y")), 10, 1);
  EXPECT_EQ(data.train_samples(), 1);
  SampleRows rows;
  data.train_rows(1, 1, 0, 1, rows);
  constexpr std::int64_t kNone = kIgnoreTarget;
  EXPECT_THAT(rows.tokens, ElementsAre('a', 'b', 'c', 'd', 256, 'x', 'y', 256, 0, 0));
  EXPECT_THAT(rows.targets,
              ElementsAre(kNone, 'c', 'd', 256, kNone, 'y', 256, kNone, kNone, kNone));
  EXPECT_THAT(rows.cu_seqlens, ElementsAre(ElementsAre(0, 5, 8, 10)));
  EXPECT_EQ(rows.learned_targets, 5);
}

TEST_F(Sft, ATemplateGivesTheAssistantsAnswersAndTheirEnd) {
  DataOptions given =
      options(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})");
  write_file(folder_ / "chat.jinja",
             "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ eos_token }}{% endfor %}"
             "{% if add_generation_prompt %}a{% endif %}");
  given.chat_template = folder_ / "chat.jinja";
  SampleRows rows;
  TrainingData(given, 6, 1).train_rows(1, 1, 0, 1, rows);
  EXPECT_THAT(rows.tokens, ElementsAre('u', 'q', 256, 'a', 'a', 256));
  EXPECT_THAT(std::vector(rows.targets.begin() + 3, rows.targets.end()),
              ElementsAre('a', 256, kIgnoreTarget));
  EXPECT_EQ(rows.learned_targets, 2);
  given.train_on = TrainOn::kAll;
  TrainingData(given, 6, 1).train_rows(1, 1, 0, 1, rows);
  EXPECT_EQ(rows.learned_targets, 5);
  given.chat_template = "";
  EXPECT_THAT(message_of<ConfigError>([&] { TrainingData(given, 6, 1); }),
              HasSubstr("conversations need a chat template"));
}

// Each epoch has each conversation once, on any number of ranks, and after a resume.
TEST_F(Sft, RanksShareTheRowsOfAnEpoch) {
  std::vector<int> lengths;
  for (int i = 0; i < 50; ++i) lengths.push_back(3 + i * 7 % 11);
  const DataOptions given = of_lengths(lengths);
  const TrainingData data(given, 16, 3), again(given, 16, 3);
  const std::int64_t rows = data.train_samples();
  SampleRows all;
  data.train_rows(1, rows, 0, rows, all);
  std::map<std::int64_t, int> seen;
  for (const std::int64_t token : all.tokens) ++seen[token];
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(seen[letter(i)], lengths[i] - 1) << i;
  }
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (std::int64_t step = 1; step <= 3; ++step) {
      SampleRows global, part;
      data.train_rows(step, 8, 0, 8, global);
      const auto counted = std::count_if(global.targets.begin(), global.targets.end(),
                                         [](std::int64_t t) { return t != kIgnoreTarget; });
      EXPECT_EQ(global.learned_targets, counted);
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        again.train_rows(step, 8, rank * (8 / ranks), 8 / ranks, part);
        EXPECT_EQ(part.learned_targets, counted);
        EXPECT_TRUE(std::equal(part.targets.begin(), part.targets.end(),
                               global.targets.begin() + rank * (8 / ranks) * 16));
        EXPECT_TRUE(std::equal(part.cu_seqlens.begin(), part.cu_seqlens.end(),
                               global.cu_seqlens.begin() + rank * (8 / ranks)));
      }
    }
  }
}

TEST_F(Sft, WhatIsTooLongIsRefusedLeftOutOrCut) {
  DataOptions given = of_lengths({4, 9, 5});
  const std::string about = "training: " + (folder_ / "talks.jsonl") +
                            ": 1 of 3 conversations is longer than model.seq (6)";
  EXPECT_EQ(message_of<ConfigError>([&] { TrainingData(given, 6, 1); }),
            about + ": " + (folder_ / "talks.jsonl") +
                ", line 2 (9 tokens); raise model.seq, or set data.truncate to drop or cut");
  SampleRows rows;
  given.truncate = Truncation::kDrop;
  EXPECT_EQ(TrainingData(given, 6, 1).train_samples(), 2);
  given.truncate = Truncation::kCut;
  const TrainingData cut(given, 6, 1);
  EXPECT_EQ(cut.train_samples(), 3);
  cut.train_rows(1, 3, 0, 3, rows);
  EXPECT_EQ(std::count(rows.tokens.begin(), rows.tokens.end(), 'B'), 6);
  EXPECT_EQ(rows.learned_targets, (4 - 1) + (6 - 4) + (5 - 2));
}

TEST_F(Sft, WhatIsCutBeforeItsAnswerIsLeftOut) {
  DataOptions given = options(completion_line("ppppppp", "c") + completion_line("p", "c") +
                              completion_line("pppppp", "c"));
  given.truncate = Truncation::kCut;
  ::testing::internal::CaptureStderr();
  const TrainingData data(given, 7, 1);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("2 of 3 conversations are longer than model.seq (7) and are cut: "));
  EXPECT_THAT(log, HasSubstr("1 of 3 conversations has no learned token within model.seq (7) and "
                             "is left out: " +
                             (folder_ / "talks.jsonl") + ", line 1"));
  EXPECT_EQ(data.train_samples(), 2);
  SampleRows rows;
  data.train_rows(1, 2, 0, 2, rows);
  EXPECT_EQ(rows.learned_targets, 2 + 1);
  EXPECT_EQ(std::count(rows.tokens.begin(), rows.tokens.end(), 'p'), 1 + 6);
  write_file(folder_ / "long.jsonl", completion_line("ppppppp", "c"));
  given.sft = {{.path = folder_ / "long.jsonl"}};
  EXPECT_EQ(message_of<IoError>([&] { TrainingData(given, 7, 1); }),
            "data.sft: no conversation with a learned token within model.seq (7) is left to train "
            "on; raise model.seq");
  given.valid = {folder_ / "long.jsonl"};
  EXPECT_EQ(message_of<ConfigError>(
                [&] { (void)open_eval_streams(given, {}, EvalShare::kValidation, 7); }),
            "there is nothing to evaluate on: no conversation of data.valid has a learned token "
            "within model.seq; raise model.seq");
  given.sft = {{.path = folder_ / "talks.jsonl"}};
  EXPECT_EQ(message_of<IoError>([&] { TrainingData(given, 7, 1); }),
            "data.valid: " + folder_ / "long.jsonl" +
                " has no conversation with a learned token within model.seq (7); name others or "
                "raise model.seq");
}

TEST_F(Sft, AnEvaluationWithoutAShareOrOfATextSaysWhatToName) {
  DataOptions given = options(completion_line("p", "c") + completion_line("pp", "c"));
  EXPECT_EQ(
      message_of<ConfigError>([&] { (void)open_eval_streams(given, {}, EvalShare::kTest, 7); }),
      "there is nothing to evaluate on: data.test is empty and data.split leaves the test set no "
      "conversations; name conversations in data.test, or give data.split a third share");
  const std::string talks = folder_ / "talks.jsonl";
  EXPECT_THAT(message_of<IoError>(
                  [&] { (void)open_eval_streams(given, {talks}, EvalShare::kValidation, 7); }),
              HasSubstr("talks.jsonl, line 1: no key 'text' (data.json_key): --text takes plain "
                        "text; conversations go into data.valid or data.test"));
  write_file(folder_ / "lines.jsonl", "{\"text\": \"abc\"}\n");
  EXPECT_EQ(open_eval_streams(given, {folder_ / "lines.jsonl"}, EvalShare::kValidation, 7).size(),
            1U);
}

TEST_F(Sft, WhatIsLeftOutIsCountedWithItsPlaces) {
  const auto tokenizer = make_tokenizer("bytes");
  const ChatEncoder encoder(*tokenizer, "bytes", "", TrainOn::kAssistant);
  write_file(folder_ / "a.jsonl", completion_line("p", "c") + "{broken\n" +
                                      completion_line("p", "") + completion_line("p", " ") +
                                      "{\"prompt\": 3}\n");
  const ConversationRequest request{.folder = folder_ / "cache",
                                    .files = find_text_files({folder_ / "a.jsonl"}),
                                    .format = ConversationFormat::kCompletion,
                                    .encoder = &encoder};
  EXPECT_EQ(ConversationCache::open_existing(request), nullptr);
  const auto built = ConversationCache::open_or_build(request);
  const auto opened = ConversationCache::open_existing(request);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->counts().text(), built->counts().text());
  EXPECT_EQ(opened->counts().text(),
            "1 conversation; left out: 1 broken, 1 of another shape, 2 with an empty answer");
  const std::vector<std::string> problems = opened->problems();
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_THAT(problems[0], HasSubstr("left out 1 broken: "));
  EXPECT_THAT(problems[0], HasSubstr("a.jsonl, line 2: "));
  EXPECT_THAT(problems[2], HasSubstr("left out 2 with an empty answer: "));
  EXPECT_THAT(problems[2], HasSubstr("a.jsonl, line 4: "));
  EXPECT_EQ(opened->place(0), (folder_ / "a.jsonl") + ", line 1");
  ConversationRequest found = request;
  found.files[0].named = false;
  EXPECT_EQ(ConversationCache::open_existing(found), nullptr) << "a found binary is no error";
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
    if (entry.path().extension() == ".conversations") std::filesystem::resize_file(entry, 40);
  }
  EXPECT_EQ(ConversationCache::open_existing(request), nullptr);
  EXPECT_EQ(ConversationCache::open_or_build(request)->size(), 3);
}

// A list is often one line, so that the line tells nothing.
TEST_F(Sft, AnItemOfAListIsToldByItsNumber) {
  const auto tokenizer = make_tokenizer("bytes");
  const ChatEncoder encoder(*tokenizer, "bytes", "", TrainOn::kAssistant);
  const std::string good = R"({"prompt":"p","completion":"c"})";
  write_file(folder_ / "a.json", "[3," + good + ", {\"prompt\": 3}\n, " + good + "]\n");
  const ConversationRequest request{.folder = folder_ / "cache",
                                    .files = find_text_files({folder_ / "a.json"}),
                                    .format = ConversationFormat::kCompletion,
                                    .encoder = &encoder};
  const auto built = ConversationCache::open_or_build(request);
  const std::vector<std::string> problems = built->problems();
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_THAT(problems[0], HasSubstr("a.json, line 1, item 1: "));
  EXPECT_THAT(problems[1], HasSubstr("a.json, line 1, item 3: "));
  EXPECT_EQ(built->place(0), (folder_ / "a.json") + ", line 1, item 2");
  EXPECT_EQ(built->place(1), (folder_ / "a.json") + ", line 2, item 4");
}

TEST_F(Sft, TheCacheIsTheSameFromAnyNumberOfThreads) {
  const auto tokenizer = make_tokenizer("bytes");
  const ChatEncoder encoder(*tokenizer, "bytes", "", TrainOn::kAssistant);
  const DataOptions given = of_lengths(std::vector<int>(300, 400));
  std::set<std::string> contents;
  for (const int threads : {1, 3}) {
    const std::string folder = folder_ / ("cache" + std::to_string(threads));
    const auto cache =
        ConversationCache::open_or_build({.folder = folder,
                                          .files = find_text_files({given.sft[0].path}),
                                          .encoder = &encoder,
                                          .threads = threads,
                                          .round_bytes = 30'000});
    EXPECT_EQ(cache->size(), 300 * 400);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      contents.insert(entry.path().filename().string() + read_file(entry.path().string()));
    }
  }
  EXPECT_EQ(contents.size(), 3U) << "tokens, conversations and the lock are the same files";
}

TEST_F(Sft, PartsHaveTheirWeightsAndTheSplitTakesWholeConversations) {
  DataOptions given = of_lengths(std::vector<int>(100, 8));
  std::string other;
  for (int i = 0; i < 100; ++i) other += completion_line("0000", "000");
  write_file(folder_ / "other.jsonl", other);
  given.sft.push_back({.path = folder_ / "other.jsonl", .weight = 3});
  given.split = {90, 10};
  const TrainingData data(given, 8, 1);
  EXPECT_EQ(data.train_samples(), 180);
  EXPECT_EQ(data.valid_samples(), 20);
  SampleRows rows;
  data.train_rows(1, 40, 0, 40, rows);
  EXPECT_EQ(std::count(rows.tokens.begin(), rows.tokens.end(), '0'), 30 * 7);
  data.valid_rows(0, 4, 0, 4, rows);
  EXPECT_EQ(std::count(rows.tokens.begin(), rows.tokens.end(), 256), 4) << "whole conversations";
}

// A logarithmic normal distribution of lengths, as of published sets of conversations.
TEST_F(Sft, NearlyAllPlacesAreUsed) {
  std::mt19937 random(7);
  const auto uniform = [&] { return (static_cast<double>(random()) + 0.5) / 4294967296.0; };
  std::vector<int> lengths(3000);
  std::int64_t tokens = 0;
  for (int& length : lengths) {
    const double normal =
        std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    length = static_cast<int>(std::clamp(60 * std::exp(normal), 8.0, 512.0));
    tokens += length;
  }
  const TrainingData data(of_lengths(lengths), 512, 1);
  EXPECT_EQ(data.train_tokens(), tokens);
  EXPECT_GE(static_cast<double>(tokens) / static_cast<double>(data.train_samples() * 512), 0.98);
}

TEST_F(Sft, ThePlanReadsNoText) {
  const DataOptions given = options(completion_line("ab", "cd"));
  EXPECT_EQ(survey_data(given, 10, true), 257);
  EXPECT_FALSE(std::filesystem::exists(given.cache_dir));
  (void)TrainingData(given, 10, 1);
  EXPECT_EQ(survey_data(given, 10, true), 257);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)survey_data(given, 3, true); }),
              HasSubstr("longer than model.seq (3)"));
}

// Documents of a stream: the target that crosses an end is ignored.
TEST_F(Sft, ADocumentMaskFollowsTheDocumentsOfAStream) {
  write_file(folder_ / "t/a.txt", "abc");
  write_file(folder_ / "t/b.txt", "de");
  write_file(folder_ / "t/c.txt", "fghijk");
  DataOptions given;
  given.text = {folder_ / "t"};
  given.split = {1, 0};
  given.cache_dir = folder_ / "cache";
  given.document_mask = true;
  const TrainingData data(given, 7, 1);  // abc| de| fghijk|: 14 tokens, a sample
  SampleRows rows;
  data.train_rows(1, 1, 0, 1, rows);
  EXPECT_THAT(rows.tokens, ElementsAre('a', 'b', 'c', 256, 'd', 'e', 256));
  EXPECT_THAT(rows.targets, ElementsAre('b', 'c', 256, kIgnoreTarget, 'e', 256, kIgnoreTarget));
  EXPECT_THAT(rows.cu_seqlens, ElementsAre(ElementsAre(0, 4, 7)));
  EXPECT_EQ(rows.learned_targets, 5);
  given.document_mask = false;
  TrainingData(given, 7, 1).train_rows(1, 1, 0, 1, rows);
  EXPECT_TRUE(rows.cu_seqlens.empty());
  EXPECT_EQ(rows.learned_targets, 0);
}

TEST(Mutation, ChatTemplates) {
  run_mutations("chat_template", fuzz_chat_template,
                {"{{", "}}", "{%", "%}", "{% for x in range(9) %}", "{% endfor %}", "messages",
                 "[::-1]", " | ", "(", ")", "'", "~", "{% generation %}", "namespace(x=1)"},
                [](std::string&) {});
}

TEST(Mutation, Conversations) {
  run_mutations("conversations", fuzz_conversations,
                {"{", "}", "[", "]", "\"", "\\", ",", "\n", "null",
                 "\"role\":", "\"content\":", "\xFF", "\x1F\x8B\x08", std::string(300, '[')},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
