#include <limits>

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      bits = bits << 8U | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63U];
    }
  }
  return out;
}

// The small vocabulary, with fillers up to `ranks`; `hole` is left out.
std::string tiktoken_file(std::size_t ranks,
                          std::size_t hole = std::numeric_limits<std::size_t>::max()) {
  std::string file;
  for (std::size_t id = 0; id < ranks; ++id) {
    std::string piece(1, static_cast<char>(id));
    if (id >= 256 && id < 268)
      piece = small_merges()[id - 256].first + small_merges()[id - 256].second;
    if (id >= 268) piece = "\xff\xfe" + std::to_string(id);
    if (id != hole) file += base64(piece) + " " + std::to_string(id) + "\n";
  }
  return file;
}

TEST(Tiktoken, EncodesAsVocabAndMerges) {
  const TempFolder folder;
  write_small_gpt2(folder / "gpt2");
  write_file(folder / "small.tiktoken", tiktoken_file(268));
  const auto ranks = make_tokenizer(folder / "small.tiktoken");
  const auto merges = make_tokenizer(folder / "gpt2");
  EXPECT_EQ(ranks->vocab_size(), merges->vocab_size());
  EXPECT_EQ(ranks->end_of_text(), merges->end_of_text());
  EXPECT_NE(ranks->fingerprint(), merges->fingerprint());
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::string text = random_text(200, seed, false);
    EXPECT_EQ(ranks->encode(text), merges->encode(text));
    EXPECT_EQ(ranks->decode(ranks->encode(text)), text);
  }
  EXPECT_EQ(make_tokenizer(folder.path())->fingerprint(), ranks->fingerprint());
}

TEST(Tiktoken, PatternAndEndOfTextFollowTheNumberOfRanks) {
  const TempFolder folder;
  write_file(folder / "a.tiktoken", tiktoken_file(300, 280));
  EXPECT_EQ(make_tokenizer(folder / "a.tiktoken")->end_of_text(), 280);  // the hole
  EXPECT_EQ(make_tokenizer(folder / "a.tiktoken")->vocab_size(), 300);
  write_file(folder / "b.tiktoken", tiktoken_file(100256));
  const auto cl100k = make_tokenizer(folder / "b.tiktoken");
  EXPECT_EQ(cl100k->end_of_text(), 100257);
  EXPECT_EQ(cl100k->vocab_size(), 100258);
  // GPT-2's pattern would part the newlines: "a\n\nb" is "a", "\n", "\n", "b" there.
  EXPECT_THAT(cl100k->encode("a\n\nb"), ElementsAre('a', 265, 'b'));
  EXPECT_THAT(cl100k->encode("!\n\n"), ElementsAre('!', 265));
  EXPECT_THAT(cl100k->encode("lo'S"), ElementsAre(256, '\'', 'S'));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)make_tokenizer(folder.path()); }),
              HasSubstr("2 .tiktoken files; name one"));
}

TEST(Tiktoken, DamagedFilesAreNamed) {
  const TempFolder folder;
  for (const char* line : {"YQ==", "YQ== x", "Y!== 1", "YQ== -1", "YQ 1", " 1"}) {
    write_file(folder / "x.tiktoken", "YQ== 0\n" + std::string(line) + "\n");
    EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder / "x.tiktoken"); }),
                HasSubstr("x.tiktoken:2: expected a piece in base64"))
        << line;
  }
  write_file(folder / "x.tiktoken", "");
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder / "x.tiktoken"); }),
              HasSubstr("holds no ranks"));
}

}  // namespace
}  // namespace sluice::testing
