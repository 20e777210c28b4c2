#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

const std::string kGolden = SLUICE_SOURCE_DIR "/tests/golden/tokenizers/";

std::vector<std::string> golden_lines(const std::string& name) {
  std::istringstream lines(read_file(kGolden + name));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  return all;
}

std::string from_hexadecimal(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

// tokenizer_oracle.py trained the tokenizer and wrote the ids of Hugging Face's tokenizers or of
// sentencepiece.
TEST_P(TokenizerGolden, HasTheIdsOfItsOwnLibrary) {
  const std::string file = GetParam();
  const auto tokenizer = make_tokenizer(kGolden + file);
  const std::vector<std::string> strings = golden_lines("strings.txt");
  const std::vector<std::string> ids = golden_lines(file.substr(0, file.find('.')) + ".ids");
  ASSERT_EQ(strings.size(), 150U);
  ASSERT_EQ(ids.size(), strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    std::string line;
    for (const std::int32_t id : tokenizer->encode(from_hexadecimal(strings[i]))) {
      line += (line.empty() ? "" : " ") + std::to_string(id);
    }
    EXPECT_EQ(line, ids[i]) << from_hexadecimal(strings[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGolden,
                         ::testing::Values("gpt2.json", "gpt2_prefix.json", "llama3.json",
                                           "qwen3.json", "llama2.json", "mistral.json",
                                           "gemma.json", "unigram_nfkc.json", "unigram_nmt.json",
                                           "spm_unigram.model", "spm_unigram_fallback.model",
                                           "spm_bpe_llama2.model", "spm_bpe_gemma.model"),
                         [](const auto& info) {
                           const std::string file = info.param;
                           return file.substr(0, file.find('.'));
                         });

TEST(Mutation, TokenizerJson) {
  run_mutations("tokenizer", fuzz_tokenizer,
                {"{", "}", "\"", "\\u0000", "null", "-1", "1e999", "[[", "\"Unigram\"", "\"BPE\"",
                 "\"unk_id\":0", "\"byte_fallback\":true", "\"Precompiled\"", "\xFF"},
                [](std::string&) {});
}

TEST(Mutation, SentencePieceModel) {
  run_mutations("sentencepiece", fuzz_sentencepiece,
                {std::string(1, '\0'), "\xFF\xFF\xFF\xFF\x0F", "\x12\x02\x18\x02", "\x0A\x00",
                 std::string(40, '\xFF')},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
