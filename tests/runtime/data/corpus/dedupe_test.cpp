#include "runtime/data/corpus/dedupe/dedupe.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/bytes.hpp"
#include "runtime/data/corpus/dedupe/normal_forms.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

std::string random_words(std::mt19937& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text.append("w").append(std::to_string(random() % 100000)).append("x ");
  }
  return text;
}

double true_similarity(std::vector<std::uint64_t> a, std::vector<std::uint64_t> b) {
  const std::set<std::uint64_t> x(a.begin(), a.end()), y(b.begin(), b.end());
  std::size_t same = 0;
  for (const std::uint64_t shingle : x) same += y.count(shingle);
  return static_cast<double>(same) / static_cast<double>(x.size() + y.size() - same);
}

// Two texts whose shingles have about the similarity s: b has s of a's words in blocks.
std::pair<std::string, std::string> similar_texts(std::mt19937& random, int common, int own) {
  const std::string both = random_words(random, common);
  return {both + random_words(random, own), both + random_words(random, own)};
}

TEST(MinHash, EstimatesAreWithinThreeSigma) {
  std::mt19937 random(3);
  const MinHashOptions options{.shingle = 1, .bands = 32, .rows = 32};
  const MinHasher hasher(options);
  double sum_of_squares = 0;
  int pairs = 0;
  for (const auto& [common, own] : {std::pair{90, 5}, {70, 15}, {50, 50}, {20, 100}}) {
    for (int i = 0; i < 25; ++i) {
      const auto [a, b] = similar_texts(random, common, own);
      const auto x = hasher.shingles(a), y = hasher.shingles(b);
      const double s = true_similarity(x, y);
      const double sigma = std::sqrt(s * (1 - s) / static_cast<double>(options.values()));
      const double error = estimated_similarity(hasher.signature(x), hasher.signature(y)) - s;
      EXPECT_LT(std::abs(error), 4.5 * sigma);
      sum_of_squares += error * error / (sigma * sigma);
      ++pairs;
    }
  }
  // Mean of 100 squares of a normal variable: 1 with the standard deviation 0.14.
  EXPECT_NEAR(sum_of_squares / pairs, 1, 3 * 0.1414);
}

TEST(MinHash, ShinglesAreOfWordsOrCharacters) {
  const MinHasher words({.shingle = 2});
  EXPECT_EQ(words.shingles("One, two; THREE 44!").size(), 3U);
  EXPECT_EQ(words.shingles("one two three 17"), words.shingles("One, two; THREE 44!"));
  EXPECT_EQ(words.shingles("one").size(), 1U);
  EXPECT_TRUE(words.shingles(" ?!").empty());
  const MinHasher characters({.unit = ShingleUnit::kCharacters, .shingle = 3, .normalise = false});
  EXPECT_EQ(characters.shingles("a\u00e9\u65e5b").size(), 2U);
  EXPECT_NE(characters.shingles("abc"), characters.shingles("abC"));
  EXPECT_EQ(message_of<ConfigError>([] { (void)MinHasher({.bands = 40, .rows = 40}); }),
            "near duplicates: shingle, bands and rows are at least 1, and bands x rows at most "
            "1024");
}

// Share of pairs of a known similarity that a banding joins, against 1 - (1 - s^rows)^bands.
TEST(MinHash, BandsJoinPairsAtTheRateOfTheTheory) {
  std::mt19937 random(5);
  const MinHashOptions options{.shingle = 1, .bands = 14, .rows = 8};
  const MinHasher hasher(options);
  for (const auto& [common, own] : {std::pair{95, 5}, {80, 12}, {70, 18}}) {
    double expected = 0, variance = 0;
    int joined = 0;
    for (int i = 0; i < 300; ++i) {
      const auto [a, b] = similar_texts(random, common, own);
      const auto x = hasher.shingles(a), y = hasher.shingles(b);
      const double p = 1 - std::pow(1 - std::pow(true_similarity(x, y), 8), 14);
      expected += p;
      variance += p * (1 - p);
      const auto s = hasher.signature(x), t = hasher.signature(y);
      bool shared = false;
      for (int band = 0; band < options.bands; ++band) {
        shared = shared || (hasher.band(s, band).high == hasher.band(t, band).high &&
                            hasher.band(s, band).low == hasher.band(t, band).low);
      }
      joined += shared;
    }
    EXPECT_NEAR(joined, expected, 3 * std::sqrt(variance) + 1) << common;
  }
}

class Dedupe : public ::testing::Test {
 protected:
  // Documents of 60 words; each tenth has an exact copy, a copy of 97 % and a copy of 37 % later.
  void SetUp() override {
    std::mt19937 random(1);
    std::vector<std::string> texts;
    for (int i = 0; i < 60; ++i) texts.push_back(random_words(random, 60));
    for (int i = 0; i < 60; i += 10) {
      texts.push_back("  " + texts[static_cast<std::size_t>(i)] + "\n");
      texts.push_back(texts[static_cast<std::size_t>(i)] + "end");
      texts.push_back(texts[static_cast<std::size_t>(i)] + random_words(random, 100));
    }
    std::string lines;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      lines += "{\"n\": " + std::to_string(i) + ", \"text\": " + json_string_of(texts[i]) + "}\n";
      if (i % 40 == 39) {
        write_file(folder_ / ("in/" + std::to_string(i) + ".jsonl"), lines);
        lines.clear();
      }
    }
    write_file(folder_ / "in/99.jsonl", lines + "{broken\n");
  }
  static std::string json_string_of(const std::string& text) {
    std::string out;
    append_json_string(text, out);
    return out;
  }
  [[nodiscard]] DedupeRequest request(const std::string& out, int threads = 1) const {
    return {.files = find_corpus_files({folder_ / "in"}),
            .folder = folder_ / out,
            .options = {.near = MinHashOptions{.shingle = 2, .bands = 4, .rows = 6}},
            .threads = threads,
            .unit_bytes = 20000,
            .sort_bytes = 480,
            .read = {.batch_bytes = 2000}};
  }
  TempFolder folder_;
};

TEST_F(Dedupe, PlantedDuplicatesGoAndTheFirstStays) {
  const Counts counts = dedupe_corpus(request("out"));
  EXPECT_EQ(counts.at("documents"), 79);
  EXPECT_EQ(counts.at("removed"), 12);  // exact and 97 %; 37 % stays
  EXPECT_EQ(counts.at("clusters"), 6);
  EXPECT_EQ(read_file(folder_ / "out/clusters.jsonl"),
            "{\"survivor\": 0, \"removed\": [60, 61]}\n{\"survivor\": 10, \"removed\": [63, 64]}\n"
            "{\"survivor\": 20, \"removed\": [66, 67]}\n{\"survivor\": 30, \"removed\": [69, 70]}\n"
            "{\"survivor\": 40, \"removed\": [72, 73]}\n{\"survivor\": 50, \"removed\": [75, "
            "76]}\n");
  const std::string removed = output_of(folder_ / "out", "removed");
  EXPECT_THAT(removed,
              HasSubstr("{\"_rejected\": {\"reason\": \"duplicate\", \"document\": 60, \"of\": 0}, "
                        "\"n\": 60, \"text\": \"  w"));
  EXPECT_EQ(std::count(removed.begin(), removed.end(), '\n'), 12);
  EXPECT_THAT(output_of(folder_ / "out", "kept"), HasSubstr("{broken\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/work"));
}

TEST_F(Dedupe, ThreadsUnitsAndMemoryChangeNothing) {
  const Counts counts = dedupe_corpus(request("one"));
  const auto files = files_below(folder_ / "one");
  for (const int threads : {2, 4}) {
    DedupeRequest more = request("threads" + std::to_string(threads), threads);
    more.read.batch_bytes = 100;
    more.sort_bytes = kMiB;
    EXPECT_EQ(dedupe_corpus(more), counts);
    EXPECT_EQ(files_below(more.folder), files);
  }
  DedupeRequest whole = request("whole");
  whole.unit_bytes = kMiB;
  EXPECT_EQ(dedupe_corpus(whole), counts);
  for (const char* output : {"kept", "removed", "clusters"}) {
    EXPECT_EQ(output_of(whole.folder, output), output_of(folder_ / "one", output));
  }
}

TEST_F(Dedupe, FailuresAtAnyPlaceChangeNothing) {
  const Counts counts = dedupe_corpus(request("one"));
  for (const char* failpoint :
       {"corpus.batch", "corpus.commit", "corpus.finish", "corpus.finished"}) {
    const DedupeRequest again = request(failpoint, 2);
    Counts resumed;
    EXPECT_GT(run_with_failures(failpoint, [&] { resumed = dedupe_corpus(again); }), 3);
    EXPECT_EQ(resumed, counts);
    EXPECT_EQ(files_below(again.folder), files_below(folder_ / "one")) << failpoint;
  }
}

TEST_F(Dedupe, TheThresholdVerifiesCandidates) {
  DedupeRequest loose = request("loose");
  // Bands of one row join nearly everything that shares a word.
  loose.options = {.exact = false, .near = MinHashOptions{.shingle = 2, .bands = 16, .rows = 1}};
  loose.unit_bytes = kMiB;
  EXPECT_EQ(dedupe_corpus(loose).at("removed"), 18);
  loose.folder = folder_ / "strict";
  loose.options.threshold = 0.8;
  EXPECT_EQ(dedupe_corpus(loose).at("removed"), 12);
  loose.folder = folder_ / "half";
  loose.options.threshold = 0.2;
  EXPECT_EQ(dedupe_corpus(loose).at("removed"), 18);
}

TEST_F(Dedupe, ExactAloneKeepsNearTexts) {
  DedupeRequest exact = request("exact");
  exact.options = dedupe_preset("exact");
  EXPECT_EQ(dedupe_corpus(exact).at("removed"), 6);
}

TEST(NormalForms, WhiteSpaceAndCaseDoNotCount) {
  EXPECT_EQ(normal_text(" A\t\n b\u00a0\u3000\u00c9 "), "a b \u00e9");
  EXPECT_EQ(normal_text("a\x01 \x1b[0m\x7f b"), "a\x01 \x1b[0m\x7f b");  // controls are no spaces
  EXPECT_EQ(normal_text(" \n"), "");
  EXPECT_EQ(normal_url(" HTTPS://A.Org/B?C#d\n"), "https://a.org/B?C");
  EXPECT_EQ(normal_url("A.Org/B"), "A.Org/B");
}

TEST_F(Dedupe, EqualUrlsAreDuplicates) {
  write_file(folder_ / "urls.jsonl",
             "{\"url\": \"HTTP://A.org/Path#one\", \"text\": \"first\"}\n"
             "{\"url\": \"http://a.org/path\", \"text\": \"second\"}\n"
             "{\"url\": \" http://a.org/Path \", \"text\": \"third\"}\n"
             "{\"url\": \"\", \"text\": \"fourth\"}\n"
             "{\"url\": \"\", \"text\": \"fifth\"}\n"
             "{\"text\": \"sixth\"}\n");
  DedupeRequest urls = request("urls");
  urls.files = find_corpus_files({folder_ / "urls.jsonl"});
  urls.options = {.exact = false, .url = true, .near = std::nullopt};
  EXPECT_EQ(dedupe_corpus(urls).at("removed"), 1);
  EXPECT_THAT(output_of(urls.folder, "removed"), HasSubstr("\"document\": 2, \"of\": 0}"));
}

TEST_F(Dedupe, AKeyThatNoDocumentHasIsRefused) {
  DedupeRequest other = request("other");
  other.keys.text = "content";
  EXPECT_THAT(message_of<IoError>([&] { (void)dedupe_corpus(other); }),
              HasSubstr("in/39.jsonl, byte 0: no key 'content' (its keys: n, text); "));
  EXPECT_FALSE(std::filesystem::exists(other.folder));
  other.options = {.exact = false, .url = true, .near = std::nullopt};  // needs no text
  EXPECT_EQ(dedupe_corpus(other).at("no_text"), 78);
  write_file(folder_ / "in/98.jsonl", "{\"n\": 1}\n{\"text\": 2}\n{\"text\": \"x\"}\n");
  EXPECT_EQ(dedupe_corpus(request("some")).at("no_text"), 2);
}

TEST_F(Dedupe, WrongOptionsAreRefused) {
  DedupeRequest wrong = request("wrong");
  wrong.options = {.exact = false, .near = std::nullopt};
  EXPECT_EQ(message_of<ConfigError>([&] { (void)dedupe_corpus(wrong); }),
            "dedupe has nothing to look for; turn on equal texts, equal URLs or near texts, or "
            "name evaluation sets");
  EXPECT_EQ(message_of<ConfigError>([] { (void)dedupe_preset("x"); }),
            "no preset 'x'; the presets: openwebtext, fineweb, exact, none");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "wrong"));
}

}  // namespace
}  // namespace sluice::testing
