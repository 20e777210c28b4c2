// The token that ends a document: what the files beside a tokenizer's file say of it.
#include "runtime/data/chat/chat_template.hpp"
#include "runtime/data/prepare/prepare_tokens.hpp"
#include "runtime/data/token_cache.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 269 pieces of vocab.json with <|endoftext|>, and <|end|>, which no customary name finds.
class EndOfText : public ::testing::Test {
 protected:
  void SetUp() override { write_small_gpt2(folder_ / "files"); }
  std::unique_ptr<Tokenizer> gpt2() { return make_tokenizer(folder_ / "files"); }
  std::unique_ptr<Tokenizer> json(bool with_end = true) {
    std::string text = write_tokenizer_json(folder_ / "files");
    for (std::size_t at; (at = text.find("<|endoftext|>")) != std::string::npos;) {
      text.replace(at, 13, with_end ? "<|end|>" : "<|none|>");
    }
    write_file(folder_ / "json/tokenizer.json", text);
    return make_tokenizer(folder_ / "json");
  }
  void beside(const std::string& name, const std::string& text) {
    write_file(folder_ / ("json/" + name), text);
    write_file(folder_ / ("files/" + name), text);
  }
  TempFolder folder_;
};

TEST_F(EndOfText, IsTheFoldersEosToken) {
  EXPECT_TRUE(json()->end_is_new());
  EXPECT_EQ(json()->end_of_text(), 269);
  const std::string before = json()->document_fingerprint();
  for (const char* config : {R"({"eos_token": "<|end|>"})",
                             R"({"eos_token": {"content": "<|end|>", "lstrip": false}})"}) {
    beside("tokenizer_config.json", config);
    const auto made = json();
    EXPECT_EQ(made->end_of_text(), 268) << config;
    EXPECT_FALSE(made->end_is_new());
    EXPECT_EQ(made->vocab_size(), 269);
  }
  // The same file and other documents: an old cache is not taken.
  EXPECT_NE(json()->document_fingerprint(), before);
  EXPECT_EQ(json()->fingerprint(), before.substr(0, before.find('+')));
}

// Precedence as in transformers 5.24.
TEST_F(EndOfText, OfSpecialTokensMapReplacesThatOfTokenizerConfig) {
  beside("special_tokens_map.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(json()->end_of_text(), 268);
  beside("special_tokens_map.json", R"({"eos_token": {"content": "<|end|>", "lstrip": false}})");
  for (const char* config :
       {"{}", R"({"eos_token": null})", R"({"eos_token": "low"})", R"({"pad_token": "low"})"}) {
    beside("tokenizer_config.json", config);
    EXPECT_EQ(json()->end_of_text(), 268) << config;
  }
  beside("tokenizer_config.json", R"({"eos_token": "low", "added_tokens_decoder": {}})");
  EXPECT_EQ(json()->end_of_text(), 257);
  beside("tokenizer_config.json", "{}");
  beside("special_tokens_map.json", "[");
  EXPECT_THAT(message_of([&] { (void)json(); }), HasSubstr("special_tokens_map.json is not"));
}

TEST_F(EndOfText, IsElseAnIdOfGenerationConfigOrConfig) {
  beside("tokenizer_config.json", R"({"eos_token": null})");
  beside("config.json", R"({"eos_token_id": [268, 5]})");
  EXPECT_EQ(json()->end_of_text(), 268);
  beside("generation_config.json", R"({"eos_token_id": 97})");  // 'a': a default, not a token
  EXPECT_TRUE(json()->end_is_new());
  beside("generation_config.json", R"({"eos_token_id": 268})");
  EXPECT_EQ(json()->end_of_text(), 268);
  beside("tokenizer_config.json", "[");
  EXPECT_THAT(message_of([&] { (void)json(); }), HasSubstr("tokenizer_config.json is not"));
}

TEST_F(EndOfText, IsElseACustomaryName) {
  const std::string alone = gpt2()->document_fingerprint();
  EXPECT_EQ(gpt2()->end_of_text(), 268);
  EXPECT_EQ(alone, gpt2()->fingerprint());
  beside("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(gpt2()->document_fingerprint(), alone);  // old caches stay
}

TEST_F(EndOfText, MayBeATokenOfAddedTokensJson) {
  beside("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  beside("added_tokens.json", R"({"<|im_end|>": 270, "<|endoftext|>": 268})");
  EXPECT_EQ(gpt2()->end_of_text(), 270);
  EXPECT_EQ(gpt2()->vocab_size(), 271);
  beside("added_tokens.json", R"({"<|im_end|>": 97})");
  EXPECT_THAT(message_of([&] { (void)gpt2(); }),
              AllOf(HasSubstr("'<|im_end|>' has the id 97, which is 'a'"),
                    HasSubstr("the files are of two tokenizers")));
}

// Ids as transformers 5.24 makes of such a folder.
TEST_F(EndOfText, AddedTokensAreTokensOfChatTextsAlone) {
  beside(
      "tokenizer_config.json",
      R"({"bos_token": "est", "added_tokens_decoder": {"271": {"content": "<|u|>", "rstrip": true}}})");
  beside("added_tokens.json", R"({"<|im|>": 270})");
  const auto made = gpt2();
  const LearnedTokens chat =
      encode_chat(*made, {"<|im|>low<|u|> \n low<|endoftext|>est", {{6, 14}}});
  EXPECT_THAT(chat.ids, ::testing::ElementsAre(270, 257, 271, 257, 268, 261));
  EXPECT_THAT(chat.learned, ::testing::ElementsAre(0, 1, 1, 0, 0, 0));
  EXPECT_GT(made->encode("<|im|>").size(), 1U);
  // Written as a tokenizer.json, the tokens are in the file.
  write_file(folder_ / "out/tokenizer.json", write_tokenizer_json(folder_ / "files"));
  EXPECT_EQ(encode_chat(*make_tokenizer(folder_ / "out"), {"<|im|>low<|u|> low", {}}).ids,
            (std::vector<std::int32_t>{270, 257, 271, 257}));
}

TEST_F(EndOfText, FollowsPreparedDocuments) {
  beside("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  write_file(folder_ / "t.txt", "low");
  const auto tokenizer = json();
  PrepareOptions options;
  options.files = find_text_files({folder_ / "t.txt"}, "test");
  options.prefix = folder_ / "out";
  options.append_eod = true;
  options.tokenizer = tokenizer.get();
  EXPECT_EQ(prepare_tokens(options).outputs.at(0).tokens, 2);
  const std::string bytes = read_file(folder_ / "out_content_document.bin") +
                            read_file(folder_ / "out_text_document.bin");
  ASSERT_EQ(bytes.size(), 4U);
  EXPECT_EQ(static_cast<std::uint8_t>(bytes[2]) + 256 * bytes[3], 268);
}

}  // namespace
}  // namespace sluice::testing
