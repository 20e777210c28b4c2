// SentencePiece models that the test writes field by field. Ids against the package itself:
// tokenizer_oracle.py.
#include <cstdio>
#include <cstring>
#include <span>

#include "runtime/data/chat/chat_template.hpp"
#include "runtime/data/tokenizer/sentencepiece_file.hpp"
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(value | 0x80U);
  return out + static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
  return varint(field << 3U) + varint(value);
}
std::string message(unsigned field, const std::string& bytes) {
  return varint(field << 3U | 2U) + varint(bytes.size()) + bytes;
}
std::string model_piece(const std::string& text, float score, unsigned type = 1) {
  std::string bits(sizeof score, '\0');
  std::memcpy(bits.data(), &score, sizeof score);
  return message(1, message(1, text) + varint(2U << 3U | 5U) + bits + number(3, type));
}

const std::string kReserved =
    model_piece("<unk>", 0, 2) + model_piece("<s>", 0, 3) + model_piece("</s>", 0, 3);
constexpr unsigned kUserDefinedType = 4, kUnusedType = 5, kByteType = 6;

class SentencePiece : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> make(const std::string& bytes) {
    write_file(folder_ / "tokenizer.model", bytes);
    return make_tokenizer(folder_.path());
  }
  std::string damaged(const std::string& bytes) {
    return message_of<IoError>([&] { (void)make(bytes); });
  }
  TempFolder folder_;
};

// Ids 3 to 9.
const std::string kPieces = model_piece("\u2581", -3) + model_piece("a", -4) +
                            model_piece("b", -5) + model_piece("ab", -2) +
                            model_piece("\u2581ab", -1) + model_piece("<u>", 0, kUserDefinedType) +
                            model_piece("aab", -1.5);
const std::string kUnigramType = message(2, number(3, 1)), kBpeType = message(2, number(3, 2));

TEST_F(SentencePiece, UnigramTakesTheBestSum) {
  const auto made = make(kReserved + kPieces + kUnigramType);
  EXPECT_EQ(made->vocab_size(), 10);
  EXPECT_EQ(made->end_of_text(), 2);
  EXPECT_THAT(made->encode("ab  aab "), ElementsAre(7, 3, 9));  // extra spaces are removed
  EXPECT_THAT(made->encode("axyb"), ElementsAre(3, 4, 0, 5));   // one id for a run
  EXPECT_THAT(made->encode("a<u>b"), ElementsAre(3, 4, 8, 5));
  EXPECT_EQ(made->decode(std::vector<std::int32_t>{7, 3, 9, 2}), "ab aab</s>");
  EXPECT_TRUE(made->encode("  ").empty());
}

TEST_F(SentencePiece, BpeMergesByScore) {
  const auto made = make(kReserved + kPieces + kBpeType + message(3, number(3, 0) + number(4, 0)));
  EXPECT_THAT(made->encode(" ab"), ElementsAre(7));
  // "ab" (-2) before "aab" (-1.5), since "aa" is no piece.
  EXPECT_THAT(made->encode("aab"), ElementsAre(9));
  EXPECT_THAT(made->encode("a<u>ab  "), ElementsAre(4, 8, 6, 3, 3));
  EXPECT_THAT(made->encode_continued("ab"), ElementsAre(6));
}

// Ids as transformers 5.24 makes of such a folder: no mark behind a special token.
TEST_F(SentencePiece, ControlPiecesAreTokensOfChatTextsAlone) {
  write_file(folder_ / "added_tokens.json", R"({"<im>": 10})");
  const auto made = make(kReserved + kPieces + kUnigramType);
  EXPECT_EQ(made->vocab_size(), 11);
  const LearnedTokens chat = encode_chat(*made, {"<s>ab</s><u> ab<im>", {{9, 19}}});
  EXPECT_THAT(chat.ids, ElementsAre(1, 6, 2, 8, 7, 10));
  EXPECT_THAT(chat.learned, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(encode_chat(*made, {"ab</s>", {}}).ids, ElementsAre(7, 2));
  EXPECT_GT(made->encode("</s>").size(), 1U);  // ordinary text elsewhere
  EXPECT_EQ(made->decode(std::vector<std::int32_t>{7, 10}), "ab<im>");
}

TEST_F(SentencePiece, BytesStandForCharactersWithoutAPiece) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    bytes += model_piece(name, 0, kByteType);
  }
  for (const unsigned type : {1U, 2U}) {
    const auto made =
        make(kReserved + kPieces + bytes + message(2, number(3, type) + number(35, 1)));
    const std::vector<std::int32_t> ids = made->encode("\u00e9ab\xff");
    EXPECT_THAT(ids, ElementsAre(3, 10 + 0xc3, 10 + 0xa9, 6, 10 + 0xef, 10 + 0xbf, 10 + 0xbd));
    EXPECT_EQ(made->decode(ids), "\u00e9ab\uFFFD");
  }
}

TEST_F(SentencePiece, DamagedFilesAreNamed) {
  const std::string whole = kReserved + kPieces + kBpeType;
  EXPECT_THAT(damaged(whole.substr(0, whole.size() - 1)), HasSubstr("a field is not complete"));
  EXPECT_THAT(damaged(kPieces), HasSubstr("no piece stands for unknown characters"));
  EXPECT_THAT(damaged(kReserved + model_piece("\xff", 0)),
              HasSubstr("piece 3 is empty or no UTF-8"));
  EXPECT_THAT(damaged(kReserved + model_piece("a", 0, 9)),
              HasSubstr("piece 3 has an unknown type"));
  EXPECT_THAT(damaged(whole + message(3, message(2, "abc"))),
              HasSubstr("the precompiled table of characters has 3 bytes"));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)make(kReserved + message(2, number(3, 3))); }),
              HasSubstr("of type 3 is not supported; expected unigram or BPE"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { (void)make(kReserved + model_piece("a", 0, kUnusedType)); }),
      HasSubstr("piece 3 is marked as unused"));
  (void)make(whole);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)write_tokenizer_json(folder_.path()); }),
              HasSubstr("a SentencePiece model is not converted"));
}

// Errors are the reader's own, and ids are of the vocabulary.
TEST_F(SentencePiece, ChangedBytesAreNoFault) {
  for (const std::string& type : {kUnigramType, kBpeType}) {
    const std::string whole = kReserved + kPieces + type + message(3, number(3, 1));
    for (unsigned seed = 0; seed < 2000; ++seed) {
      std::mt19937 random(seed);
      std::string changed = whole;
      for (unsigned i = 0; i <= seed % 3; ++i) {
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      fuzz_sentencepiece(std::as_bytes(std::span(changed)));
    }
  }
}

// A table whose units point anywhere.
TEST_F(SentencePiece, ATableOfRandomUnitsIsNoFault) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::string units = random_bytes(64 * 4, seed);
    const Charsmap charsmap("m", std::string("\x00\x01\x00\x00", 4) + units + "abc");
    const Charsmap::Match match = charsmap.match(random_bytes(20, seed + 1), seed % 2 == 0);
    EXPECT_LE(match.bytes, 20U);
  }
}

}  // namespace
}  // namespace sluice::testing
