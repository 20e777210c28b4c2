#include "runtime/data/corpus/dedupe/contamination.hpp"

#include "runtime/data/corpus/dedupe/dedupe.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string numbered(const std::string& word, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += word + std::to_string(i) + (i % 10 == 9 ? ". " : " ");
  return text;
}

TEST(Contamination, RunsOfThirteenWordsAndShortTextsAreFound) {
  EvaluationGrams grams({});
  grams.add(numbered("q", 15));                    // three runs of 13
  grams.add("one two three four five six seven");  // 7 words: too short
  grams.add("One, two; three four five six seven EIGHT?");
  EXPECT_EQ(grams.size(), 4U);
  const std::string text = "x Q0 q1 " + numbered("q", 15).substr(6) +
                           " y q5 one TWO three - four five"
                           " six seven eight one two";
  const auto runs = grams.find(text);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(text.substr(runs[0].begin, 2), "Q0");
  EXPECT_EQ(text.substr(runs[0].end - 3, 3), "q12");
  EXPECT_EQ(text.substr(runs[1].begin, runs[1].end - runs[1].begin),
            "one TWO three - four five six seven eight");
  EXPECT_THAT(grams.find("q0 q1 q2 q3 q4 q5 q6 q7 q8 q9 q10 q11 other q12"), IsEmpty());
}

TEST(Contamination, TheTextIsCutAtSentencesOnBothSides) {
  EvaluationGrams grams({.cut_characters = 10, .least_characters = 20});
  grams.add(numbered("q", 13));
  const std::string head = "This sentence stays as it is. And this one is near the ",
                    tail = " the rest of it is near. But this sentence stays again.";
  const std::string text = head + numbered("q", 13) + tail;
  EXPECT_THAT(grams.pieces(text, {0}),
              ElementsAre("This sentence stays as it is.", " But this sentence stays again."));
  EXPECT_THAT(grams.pieces(text, {9}), ::testing::SizeIs(2));
  EXPECT_THAT(grams.pieces(text, {10}), ElementsAre(text));  // a common phrase
  EXPECT_THAT(grams.pieces("Short. " + numbered("q", 13) + " end. Short.", {0}), IsEmpty());
  EXPECT_THAT(grams.pieces("nothing in it", {0}), ElementsAre("nothing in it"));
  EXPECT_THAT(grams.pieces(text + text, {0}), ::testing::SizeIs(3));
}

TEST(Contamination, ManyMatchesTakeLinearTime) {
  EvaluationGrams grams({});
  grams.add(numbered("q", 13));
  std::string text;
  for (int i = 0; i < 20000; ++i) text += numbered("q", 13);
  EXPECT_EQ(grams.find(text).size(), 20000U);
  EXPECT_THAT(grams.pieces(text, {0}), IsEmpty());
}

TEST(Contamination, DocumentsLoseWhatTheyShare) {
  const TempFolder folder;
  write_file(folder / "eval.jsonl", "{\"text\": \"" + numbered("q", 14) + "\"}\n");
  std::string lines;
  for (int i = 0; i < 30; ++i) {
    const std::string before = numbered("a" + std::to_string(i) + "x", 90);
    const std::string after = numbered("b" + std::to_string(i) + "x", i % 3 == 0 ? 90 : 5);
    const std::string text = i % 5 == 0 ? before + numbered("q", 14) + after : before;
    lines += "{\"n\": " + std::to_string(i) + ", \"text\": " + json_string(text) + "}\n";
  }
  write_file(folder / "in.jsonl", lines + "{broken\n");
  DedupeRequest request{.files = find_corpus_files({folder / "in.jsonl"}),
                        .folder = folder / "one",
                        .options = dedupe_preset("none"),
                        .against = find_corpus_files({folder / "eval.jsonl"}),
                        .unit_bytes = 12000,
                        .read = {.batch_bytes = 1500}};
  const Counts counts = dedupe_corpus(request);
  EXPECT_EQ(counts.at("documents"), 31);
  EXPECT_EQ(counts.at("cut"), 6);
  EXPECT_EQ(counts.at("kept"), 31);
  EXPECT_EQ(counts.at("pieces"), 8);  // two fall into two pieces
  EXPECT_THAT(output_of(folder / "one", "kept"),
              HasSubstr("{\"_piece\": 1, \"n\": 15, \"text\": \""));
  EXPECT_THAT(output_of(folder / "one", "kept"), ::testing::Not(HasSubstr("q7")));
  EXPECT_THAT(
      output_of(folder / "one", "removed"),
      HasSubstr("{\"_rejected\": {\"reason\": \"contaminated.cut\", \"pieces\": 1}, \"n\": 5, "));
  request.threads = 4;
  request.folder = folder / "four";
  EXPECT_EQ(dedupe_corpus(request), counts);
  EXPECT_EQ(files_below(folder / "four"), files_below(folder / "one"));
  request.folder = folder / "resumed";
  Counts resumed;
  EXPECT_GT(run_with_failures("corpus.commit", [&] { resumed = dedupe_corpus(request); }), 2);
  EXPECT_EQ(resumed, counts);
  EXPECT_EQ(files_below(folder / "resumed"), files_below(folder / "one"));
  write_file(folder / "short.jsonl", "{\"text\": \"few words\"}\n");
  request.against = find_corpus_files({folder / "short.jsonl"});
  EXPECT_EQ(message_of<ConfigError>([&] { (void)dedupe_corpus(request); }),
            "the evaluation sets have no text of at least 8 words");
}

}  // namespace
}  // namespace sluice::testing
