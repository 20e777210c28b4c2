// A tokenizer written as tokenizer.json is the same tokenizer. What Hugging Face's own library
// makes of the file: tests/cli/hf_transformers_test.py.
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/data/tokenizer/train_bpe.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class WriteTokenizerJson : public ::testing::Test {
 protected:
  std::string written(const std::string& spec) {
    const std::string text = write_tokenizer_json(spec);
    write_file(folder_ / "out/tokenizer.json", text);
    return text;
  }
  void expect_same_ids(const std::string& spec) {
    (void)written(spec);
    const auto ours = make_tokenizer(spec);
    const auto theirs = make_tokenizer(folder_ / "out");
    EXPECT_EQ(theirs->vocab_size(), ours->vocab_size());
    EXPECT_EQ(theirs->end_of_text(), ours->end_of_text());
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::string text = random_text(200, seed, false);
      // A special token of a tokenizer.json is recognised in a text.
      for (std::size_t at = 0; (at = text.find("<|", at)) != std::string::npos;) text.erase(at, 2);
      const std::vector<std::int32_t> ids = ours->encode(text);
      EXPECT_EQ(theirs->encode(text), ids);
      EXPECT_EQ(theirs->decode(ids), text);
    }
    const std::vector<std::int32_t> end{ours->end_of_text()};
    EXPECT_EQ(theirs->decode(end), ours->decode(end));
  }
  TempFolder folder_;
};

TEST_F(WriteTokenizerJson, OfBytes) {
  expect_same_ids("bytes");
  const std::string text = written("bytes");
  EXPECT_THAT(text, HasSubstr("\"\u0100\": 0,"));  // byte 0 in the alphabet
  EXPECT_THAT(text, HasSubstr("\"A\": 65,"));
  EXPECT_THAT(text, HasSubstr("\"<|endoftext|>\": 256"));
  EXPECT_THAT(text, HasSubstr("\"use_regex\": false"));
  EXPECT_THAT(text, HasSubstr("\"special\": true"));
}

TEST_F(WriteTokenizerJson, OfVocabAndMerges) {
  write_small_gpt2(folder_ / "gpt2");
  expect_same_ids(folder_ / "gpt2");
  write_file(folder_ / "t.txt", random_text(3000, 3, true));
  (void)train_bpe({.text = {folder_ / "t.txt"}, .vocab_size = 400, .out_dir = folder_ / "trained"});
  expect_same_ids(folder_ / "trained");
}

TEST_F(WriteTokenizerJson, OfRanks) {
  std::string file;
  for (int id = 0; id < 256; ++id) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto byte = static_cast<unsigned>(id);
    file += {kDigits[byte >> 2U], kDigits[(byte & 3U) << 4U], '=', '='};
    file += " " + std::to_string(id) + "\n";
  }
  file += "bG8= 256\nbG93 257\nbG93ZXI= 258\nZXI= 259\n";  // lo, low, lower, er
  write_file(folder_ / "ranks.tiktoken", file);
  expect_same_ids(folder_ / "ranks.tiktoken");
  EXPECT_THAT(written(folder_ / "ranks.tiktoken"), HasSubstr("\"ignore_merges\": true"));
}

// Byte for byte, whatever its layout and its other keys.
TEST_F(WriteTokenizerJson, OneThatIsThereIsPassedOn) {
  std::string text = written("bytes");
  text.insert(text.find('{') + 1, "  \"note\": 1,  ");
  write_file(folder_ / "in/tokenizer.json", text);
  EXPECT_EQ(written(folder_ / "in"), text);
}

TEST_F(WriteTokenizerJson, FingerprintsAreThoseOfTheTokenizer) {
  write_small_gpt2(folder_ / "gpt2");
  (void)written(folder_ / "gpt2");
  for (const std::string& spec : {std::string("bytes"), folder_ / "gpt2", folder_ / "out"}) {
    EXPECT_EQ(tokenizer_fingerprint(spec), make_tokenizer(spec)->fingerprint());
  }
}

}  // namespace
}  // namespace sluice::testing
