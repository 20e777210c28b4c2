// Facts of a corpus against counts by hand; the same for any threads and piece sizes.
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/data/prepare/indexed_writer.hpp"
#include "runtime/data/stats/data_stats.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string stats_json_of(const DataStats& stats, const Tokenizer* tokenizer = nullptr) {
  return stats_json(stats, {.title = "t", .tokenizer = tokenizer});
}

// A model of pieces, with an unknown and the byte pieces of "é".
std::unique_ptr<Tokenizer> piece_tokenizer(const TempFolder& folder) {
  Json vocab;
  for (const char* const piece : {"<unk>", "<|endoftext|>", "<0xC3>", "<0xA9>", "a", "b", "ab"}) {
    vocab[piece] = vocab.size();
  }
  const Json root{{"model",
                   {{"type", "BPE"},
                    {"vocab", vocab},
                    {"merges", Json::array({"a b"})},
                    {"unk_token", "<unk>"},
                    {"byte_fallback", true}}},
                  {"decoder", {{"type", "ByteFallback"}}}};
  write_file(folder / "tokenizer.json", root.dump());
  return make_tokenizer(folder / "tokenizer.json");
}

TEST(LengthCounts, QuantilesAreThoseOfTheSortedLengths) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> lengths;
  LengthCounts counts;
  for (int i = 0; i < 3000; ++i) {
    lengths.push_back(static_cast<std::int64_t>(random() >> (14 + random() % 50)));
    counts.add(lengths.back());
  }
  std::sort(lengths.begin(), lengths.end());
  EXPECT_EQ(counts.least(), lengths.front());
  EXPECT_EQ(counts.most(), lengths.back());
  for (const double q : {0.0, 0.001, 0.1, 0.5, 0.77, 0.999, 1.0}) {
    const auto rank = std::max<std::int64_t>(std::llround(std::ceil(q * 3000)), 1);
    const std::int64_t expected = lengths[static_cast<std::size_t>(rank - 1)];
    EXPECT_LE(counts.quantile(q), expected) << q;
    EXPECT_GE(counts.quantile(q), expected - (expected < 4096 ? 0 : expected / 2048)) << q;
  }
}

TEST(LengthCounts, OctavesHoldEveryDocument) {
  LengthCounts counts;
  for (const std::int64_t length : {0, 1, 2, 3, 4, 1 << 20}) counts.add(length);
  const auto octaves = counts.octaves();
  ASSERT_EQ(octaves.size(), 22U);
  EXPECT_EQ(octaves[0].documents, 1);
  EXPECT_EQ(octaves[2].documents, 2);
  EXPECT_EQ(octaves[2].tokens, 5);
  EXPECT_EQ(octaves[21].tokens, 1 << 20);
  EXPECT_EQ(counts.tokens(), (1 << 20) + 10);
}

TEST(DataStats, TextIsCountedByDocument) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "{\"text\": \"aab\"}\n{\"text\": \"b\\n\"}\n");
  write_file(folder / "b.txt", "ccccc");
  const auto tokenizer = make_tokenizer("bytes");
  const DataStats stats = measure_data(
      {.inputs = {folder / "a.jsonl", folder / "b.txt"}, .tokenizer = tokenizer.get()});
  EXPECT_EQ(stats.files, 2);
  EXPECT_EQ(stats.text_bytes, 10);
  EXPECT_EQ(stats.lengths.documents(), 3);
  EXPECT_EQ(stats.lengths.tokens(), 10);
  EXPECT_EQ(stats.lengths.quantile(0.5), 3);
  EXPECT_EQ(stats.distinct(), 4);
  EXPECT_THAT(stats.most_frequent(3), ElementsAre('c', 'a', 'b'));
  EXPECT_EQ(token_text(*tokenizer, '\n'), "'\\n'");
  EXPECT_EQ(token_text(*tokenizer, 0xE9), "'\\xe9'");
}

TEST(DataStats, AreTheSameForAnyThreadsAndPieces) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "word" + std::to_string(i * i) + (i % 9 == 0 ? "\n" : " ");
  write_file(folder / "a.txt", text);
  const auto tokenizer = make_tokenizer("bytes");
  std::string expected;
  for (const int threads : {1, 2, 4}) {
    for (const std::size_t piece_bytes : {16U, 100U, 1U << 20U}) {
      const DataStats stats = measure_data({.inputs = {folder / "a.txt"},
                                            .tokenizer = tokenizer.get(),
                                            .threads = threads,
                                            .piece_bytes = piece_bytes});
      if (expected.empty()) expected = stats_json_of(stats);
      EXPECT_EQ(stats_json_of(stats), expected);
    }
  }
  EXPECT_EQ(Json::parse(expected)["documents"], 1);
}

TEST(DataStats, UnknownTextAndBytesAreTold) {
  const TempFolder folder;
  const auto tokenizer = piece_tokenizer(folder);
  EXPECT_EQ(tokenizer->kind(0), TokenKind::kUnknown);
  EXPECT_EQ(tokenizer->kind(2), TokenKind::kByte);
  EXPECT_EQ(tokenizer->kind(4), TokenKind::kPiece);
  EXPECT_EQ(tokenizer->kind(-1), TokenKind::kUnknown);
  write_file(folder / "a.txt", "ab\xC3\xA9z");
  const DataStats stats =
      measure_data({.inputs = {folder / "a.txt"}, .tokenizer = tokenizer.get()});
  EXPECT_EQ(stats.lengths.tokens(), 4);
  EXPECT_EQ(stats.unknown, 1);
  EXPECT_EQ(stats.bytes, 2);
  EXPECT_THAT(stats_text(stats, {.tokenizer = tokenizer.get()}),
              HasSubstr("byte fallback 2 tokens, 50 %, 40 % of the bytes\n"));
}

TEST(DataStats, PairsAreCountedWithOrWithoutATokenizer) {
  const TempFolder folder;
  write_megatron<std::int32_t>(folder / "p", 4, {{1, 2, 300}, {2, 256}, {-1, 2}});
  const DataStats without = measure_data({.inputs = {folder / "p.idx"}});
  EXPECT_EQ(without.pairs, 1);
  EXPECT_EQ(without.outside, 1);
  EXPECT_EQ(without.lengths.tokens(), 7);
  EXPECT_EQ(without.counts.size(), 301U);
  const auto tokenizer = make_tokenizer("bytes");
  const DataStats with = measure_data({.inputs = {folder / "p"}, .tokenizer = tokenizer.get()});
  EXPECT_EQ(with.outside, 2);
  EXPECT_EQ(with.end_of_text, 1);
  const Json json = Json::parse(stats_json_of(with, tokenizer.get()));
  EXPECT_EQ(json["outside_vocabulary"], 2);
  EXPECT_EQ(json["most_frequent"][0]["id"], 2);
  EXPECT_EQ(json["most_frequent"][0]["text"], "'\\x02'");
  EXPECT_EQ(json["lengths"]["histogram"][2]["documents"], 3);
  const Json page = Json::parse(stats_page_json(with, {.tokenizer = tokenizer.get()}));
  EXPECT_EQ(page["ranks"]["rank"], Json::parse("[1, 2, 3]"));
  EXPECT_EQ(page["ranks"]["tokens"], Json::parse("[3, 1, 1]"));
}

TEST(DataStats, RefusesWithARemedy) {
  const TempFolder folder;
  write_file(folder / "a.txt", "");
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)measure_data({.inputs = {folder / "a.txt"}}); }),
            "data stats: " + folder / "a.txt" +
                " is text, whose tokens need a tokenizer; give --tokenizer");
  EXPECT_EQ(message_of([&] {
              (void)measure_data({.inputs = {folder / "a.txt"}, .tokenizer = tokenizer.get()});
            }),
            "data stats: no document in " + folder / "a.txt");
}

}  // namespace
}  // namespace sluice::testing
