#include <array>
#include <thread>

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(Bytes, EveryByteIsItselfAndComesBack) {
  const auto tokenizer = make_tokenizer("bytes");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Ids ids = tokenizer->encode(all);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->decode(Ids{'a', 256, 'b', 300, -1}), "a<|endoftext|>b\uFFFD\uFFFD");
  EXPECT_TRUE(tokenizer->encode("").empty());
}

class SmallGpt2 : public ::testing::Test {
 protected:
  SmallGpt2() { write_small_gpt2(folder_.path()); }
  TempFolder folder_;
};

TEST_F(SmallGpt2, MergesByRank) {
  const auto tokenizer = make_tokenizer(folder_.path());
  EXPECT_EQ(tokenizer->vocab_size(), kSmallEndOfText + 1);
  EXPECT_EQ(tokenizer->end_of_text(), kSmallEndOfText);
  // "lower" = lo+w, e+r, low+er; " lowest": the space joins low (rank 3) before es, est are made.
  EXPECT_THAT(tokenizer->encode("lower lowest"), ElementsAre(262, 259, 261));
  EXPECT_THAT(tokenizer->encode(" lower"), ElementsAre(263));
  EXPECT_THAT(tokenizer->encode("slower"), ElementsAre('s', 262));
  EXPECT_THAT(tokenizer->encode("it's"), ElementsAre('i', 't', 266));
  EXPECT_THAT(tokenizer->encode("\u00e9\xc3"), ElementsAre(267, 0xc3));  // the second is no UTF-8
  EXPECT_THAT(tokenizer->encode("     a"), ElementsAre(264, 264, ' ', 'a'));
}

TEST_F(SmallGpt2, EveryWayOfNamingItIsTheSame) {
  const auto tokenizer = make_tokenizer(folder_.path());
  for (const char* name : {"vocab.json", "merges.txt"}) {
    const auto other = make_tokenizer(folder_ / name);
    EXPECT_EQ(other->fingerprint(), tokenizer->fingerprint());
    EXPECT_EQ(other->encode("lower lowest"), tokenizer->encode("lower lowest"));
  }
  std::filesystem::rename(folder_ / "vocab.json", folder_ / "gpt2-vocab.json");
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder_ / "merges.txt"); }),
              HasSubstr("vocab.json beside"));
  std::filesystem::rename(folder_ / "merges.txt", folder_ / "gpt2-merges.txt");
  EXPECT_EQ(make_tokenizer(folder_ / "gpt2-merges.txt")->fingerprint(), tokenizer->fingerprint());
}

TEST_F(SmallGpt2, TheNameOfASpecialTokenIsOrdinaryText) {
  const auto tokenizer = make_tokenizer(folder_.path());
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13U);  // no merge applies
  EXPECT_EQ(tokenizer->decode(Ids{262, kSmallEndOfText, 5000}), "lower<|endoftext|>\uFFFD");
}

TEST_F(SmallGpt2, AnyBytesComeBack) {
  const auto tokenizer = make_tokenizer(folder_.path());
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::string bytes = random_bytes(seed * 7, seed);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
    const std::string text = random_text(100, seed, false);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// Words of every length around the limits of the short path (32) and of the cache (64), against
// merging all occurrences of the best pair, over and over.
TEST_F(SmallGpt2, LongWordsMergeAsShortOnes) {
  const auto tokenizer = make_tokenizer(folder_.path());
  std::mt19937 random(1);
  for (const std::size_t length : {1U, 2U, 3U, 31U, 32U, 33U, 63U, 64U, 65U, 500U}) {
    std::string word;
    while (word.size() < length) word += "lowerst"[random() % 7];
    std::vector<std::string> pieces;
    for (const char c : word) pieces.emplace_back(1, c);
    for (const auto& [left, right] :
         small_merges()) {  // here no merge makes an earlier one possible
      for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
        if (pieces[i] != left || pieces[i + 1] != right) continue;
        pieces[i] += right;
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    std::vector<std::string> got;
    for (const std::int32_t id : tokenizer->encode(word)) got.push_back(tokenizer->decode(Ids{id}));
    EXPECT_EQ(got, pieces) << word;
    EXPECT_EQ(tokenizer->encode(word), tokenizer->encode(word));  // from the cache
  }
}

// More ids than a slot of the cache holds, and in all more than the cache keeps apart.
TEST_F(SmallGpt2, WordsOfManyIdsAreRememberedAndForgotten) {
  const auto tokenizer = make_tokenizer(folder_.path());
  std::string text;
  for (unsigned i = 0; i < 25'000; ++i) {
    text += ' ';
    for (unsigned shift = 0; shift < 24; shift += 2) text += "kqxz"[(i * 9973U) >> shift & 3U];
    if (i % 3 == 0) text += " kqxzkqxz";  // again and again
  }
  const Ids expected(text.begin(), text.end());  // no pair of these letters merges
  EXPECT_EQ(tokenizer->encode(text), expected);
  EXPECT_EQ(tokenizer->encode(text), expected);
}

TEST_F(SmallGpt2, AWordOfAMegabyteIsNotQuadratic) {
  const auto tokenizer = make_tokenizer(folder_.path());
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "lower";
  EXPECT_EQ(tokenizer->encode(word), Ids(200000, 262));
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, ' ')), Ids(1 << 19, 264));
}

TEST_F(SmallGpt2, ThreadsAndTokenizersDoNotMixTheirCaches) {
  const auto tokenizer = make_tokenizer(folder_.path());
  const auto bytes_only = [&] {
    write_file(folder_ / "plain/vocab.json", small_vocab_json());
    write_file(folder_ / "plain/merges.txt", "#version: 0.2\n");
    return make_tokenizer(folder_ / "plain");
  }();
  EXPECT_EQ(bytes_only->end_of_text(), kSmallEndOfText);  // none in the file: the next id
  EXPECT_THAT(tokenizer->encode("low"), ElementsAre(257));
  EXPECT_THAT(bytes_only->encode("low"), ElementsAre('l', 'o', 'w'));
  EXPECT_THAT(tokenizer->encode("low"), ElementsAre(257));
  const std::string text = random_text(2000, 7);
  const Ids expected = tokenizer->encode(text);
  std::array<Ids, 4> got;
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer->encode(text); });
  }
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

TEST_F(SmallGpt2, DamagedFilesAreNamed) {
  const auto fails = [&](const std::string& file, const std::string& content) {
    write_small_gpt2(folder_.path());
    write_file(folder_ / file, content);
    return message_of<Error>([&] { (void)make_tokenizer(folder_.path()); });
  };
  EXPECT_THAT(fails("merges.txt", "#version: 0.2\nl o\nl q\n"),
              HasSubstr("merges.txt:3: 'lq' is not in"));
  EXPECT_THAT(fails("merges.txt", "l o w\n"), HasSubstr("merges.txt:1: expected two pieces"));
  EXPECT_THAT(fails("vocab.json", "{\"a\": 1"), HasSubstr("vocab.json is not valid JSON"));
  EXPECT_THAT(fails("vocab.json", "{\"a\": -1}"), HasSubstr("the id of 'a'"));
  EXPECT_THAT(fails("vocab.json", "{\"a\": 1, \"b\": 1}"), HasSubstr("id 1 stands for two pieces"));
  write_file(folder_ / "vocab.json", "{\"a\": 97}");
  write_file(folder_ / "merges.txt", "");
  EXPECT_THAT(message_of<ConfigError>([&] { (void)make_tokenizer(folder_.path()); }),
              HasSubstr("byte 0 has no id"));
}

TEST(MakeTokenizer, SaysWhatItCannotFind) {
  const TempFolder folder;
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder / "none"); }),
              HasSubstr("no file or folder"));
  EXPECT_THAT(
      message_of([&] { (void)make_tokenizer(folder.path()); }),
      HasSubstr("no tokenizer.json, vocab.json + merges.txt, *.tiktoken or tokenizer.model;"));
  write_file(folder / "x.spm", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { (void)make_tokenizer(folder / "x.spm"); }),
              HasSubstr("of no known kind"));
}

}  // namespace
}  // namespace sluice::testing
