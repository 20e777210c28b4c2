#include "runtime/data/token_cache.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string merges_json(bool as_arrays) {
  std::string json = "[";
  for (const auto& [left, right] : small_merges()) {
    if (json.size() > 1) json += ", ";
    const std::string a = to_alphabet(left), b = to_alphabet(right);
    json +=
        as_arrays ? "[" + json_string(a) + ", " + json_string(b) + "]" : json_string(a + " " + b);
  }
  return json + "]";
}

struct Parts {
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string normalizer = "null";
  std::string decoder = R"({"type": "ByteLevel"})";
  std::string model_more = "";
  bool merges_as_arrays = false;
  std::string added = R"([{"id": 268, "content": "<|endoftext|>", "special": true, "lstrip": false},
                          {"id": 270, "content": "<|im|>", "special": false}])";
  std::string type = "BPE";
  std::string post_processor = "null";
};

std::string json_of(const Parts& parts) {
  return R"({"version": "1.0", "truncation": null, "padding": null, "post_processor": )" +
         parts.post_processor + R"(, "normalizer": )" + parts.normalizer +
         R"(, "pre_tokenizer": )" + parts.pre_tokenizer + R"(, "decoder": )" + parts.decoder +
         R"(, "added_tokens": )" + parts.added + R"(, "model": {"type": ")" + parts.type +
         R"(", "dropout": null, "unk_token": null, "continuing_subword_prefix": "")" +
         parts.model_more + R"(, "vocab": )" + small_vocab_json() + R"(, "merges": )" +
         merges_json(parts.merges_as_arrays) + "}}";
}

class TokenizerJson : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> make(const Parts& parts) {
    write_file(folder_ / "tokenizer.json", json_of(parts));
    return make_tokenizer(folder_.path());
  }
  template <typename E = ConfigError>
  std::string refused(const Parts& parts) {
    return message_of<E>([&] { make(parts); });
  }
  TempFolder folder_;
};

TEST_F(TokenizerJson, EncodesAsVocabAndMerges) {
  write_small_gpt2(folder_ / "gpt2");
  const auto merges = make_tokenizer(folder_ / "gpt2");
  for (const bool as_arrays : {false, true}) {
    Parts parts;
    parts.merges_as_arrays = as_arrays;
    parts.added = "[]";
    const auto json = make(parts);
    for (unsigned seed = 0; seed < 20; ++seed) {
      const std::string text = random_text(200, seed, false);
      EXPECT_EQ(json->encode(text), merges->encode(text));
    }
  }
}

TEST_F(TokenizerJson, AddedTokensAreRecognised) {
  const auto json = make({});
  EXPECT_EQ(json->end_of_text(), 268);
  EXPECT_EQ(json->vocab_size(), 271);
  const auto ids = json->encode("low<|im|><|endoftext|>er<|im|");
  EXPECT_THAT(std::vector(ids.begin(), ids.begin() + 4), ElementsAre(257, 270, 268, 258));
  EXPECT_EQ(json->decode(ids), "low<|im|><|endoftext|>er<|im|");
  EXPECT_EQ(json->decode(std::vector<std::int32_t>{269}), "\uFFFD");  // a hole
}

TEST_F(TokenizerJson, TheLongerAddedTokenWins) {
  Parts parts;
  parts.added = R"([{"id": 268, "content": "<a"}, {"id": 269, "content": "<a>"}])";
  EXPECT_THAT(make(parts)->encode("<a><a<"), ElementsAre(269, 268, '<'));
}

TEST_F(TokenizerJson, SequencesOfSplits) {
  Parts parts;
  parts.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "low|\\s+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  EXPECT_THAT(make(parts)->encode("lower  low"), ElementsAre(257, 258, 264, 257));
  parts.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "o"}, "behavior": "Isolated"},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false}]})";
  EXPECT_THAT(make(parts)->encode("low er"), ElementsAre('l', 'o', 'w', ' ', 258));
}

TEST_F(TokenizerJson, IgnoreMergesTakesAWholeWord) {
  Parts parts;
  // Reached by the merges only from "low" + "er"; here "er" cannot be made.
  const auto without_er = [&](bool ignore) {
    parts.model_more = ignore ? R"(, "ignore_merges": true)" : "";
    std::string json = json_of(parts);
    const std::string merge = R"("e r", )";
    json.erase(json.find(merge), merge.size());
    write_file(folder_ / "tokenizer.json", json);
    return make_tokenizer(folder_.path())->encode("lower");
  };
  EXPECT_THAT(without_er(false), ElementsAre(257, 'e', 'r'));
  EXPECT_THAT(without_er(true), ElementsAre(262));
}

// Llama 3's layout: a template, after a step that changes no token.
TEST_F(TokenizerJson, TokensBeforeATextAreToldApartFromIt) {
  const std::string around = R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<b>", "type_id": 0}}, {"Sequence": {"id": "A"}},
                 {"SpecialToken": {"id": "<e>", "type_id": 0}}],
      "special_tokens": {"<b>": {"id": "<b>", "ids": [270, 269], "tokens": ["<b>", "<c>"]},
                         "<e>": {"id": "<e>", "ids": [268], "tokens": ["<e>"]}}})";
  const auto leading = [&](const std::string& post_processor) {
    const auto made = make({.post_processor = post_processor});
    EXPECT_THAT(made->encode("low"), ElementsAre(257));
    return std::vector(made->leading().begin(), made->leading().end());
  };
  EXPECT_THAT(leading(around), ElementsAre(270, 269));
  EXPECT_THAT(
      leading(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + around + "]}"),
      ElementsAre(270, 269));
  EXPECT_THAT(leading("null"), ElementsAre());
  EXPECT_THAT(leading(R"({"type": "ByteLevel", "trim_offsets": false})"), ElementsAre());
  std::string broken = around;
  broken.replace(broken.find("[270"), 4, "[-27");
  EXPECT_THAT(refused<IoError>({.post_processor = broken}),
              HasSubstr("the id of post_processor '<b>' is not a number"));
  broken.replace(broken.find("\"<b>\": {"), 5, "\"<x>\"");
  EXPECT_THAT(refused<IoError>({.post_processor = broken}), HasSubstr("is not a tokenizer.json"));
}

TEST_F(TokenizerJson, WhatIsNotUnderstoodIsRefusedByName) {
  EXPECT_THAT(refused({.type = "Unigram"}),
              AllOf(HasSubstr("tokenizer.json: model Unigram"), HasSubstr("only byte-level BPE")));
  EXPECT_THAT(refused({.model_more = R"(, "byte_fallback": true)"}),
              HasSubstr("model.byte_fallback"));
  EXPECT_THAT(refused({.normalizer = R"({"type": "Lowercase"})"}),
              HasSubstr("normalizer Lowercase"));
  EXPECT_THAT(refused({.decoder = R"({"type": "Metaspace"})"}), HasSubstr("decoder Metaspace"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "Metaspace"})"}),
              HasSubstr("pre_tokenizer Metaspace"));
  EXPECT_THAT(refused({.pre_tokenizer = "null"}), HasSubstr("pre_tokenizer null"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "Digits"})"}), HasSubstr("without ByteLevel"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true})"}),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "Split", "pattern": {"Regex": "a"},
                                           "behavior": "MergedWithNext", "invert": false})"}),
              HasSubstr("behavior MergedWithNext"));
  EXPECT_THAT(refused({.added = R"([{"id": 268, "content": "<m>", "lstrip": true}])"}),
              HasSubstr("added token '<m>' with lstrip"));
  EXPECT_NO_THROW(make({.normalizer = R"({"type": "NFC"})"}));  // with a warning
}

TEST_F(TokenizerJson, ASlowPatternIsNamedWithItsFileAndText) {
  const auto with = [](const std::string& pattern) {
    return Parts{.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": ")" +
                                  pattern +
                                  R"("}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"};
  };
  EXPECT_THAT(refused<IoError>(with("(a+)+$")),
              AllOf(HasSubstr(folder_ / "tokenizer.json"), HasSubstr("the split pattern '(a+)+$'"),
                    HasSubstr("needs exponential time")));
  EXPECT_THAT(refused(with("(a")), AllOf(HasSubstr(folder_ / "tokenizer.json"), HasSubstr("'(a'")));
  const auto tokenizer = make(with("(x+)+$"));
  EXPECT_THAT(tokenizer->encode("low xx"), ElementsAre(257, ' ', 'x', 'x'));
  const std::string slow = "lower " + std::string(64, 'x') + "!";
  EXPECT_THAT(
      message_of<TokenizeError>([&] { (void)tokenizer->encode(slow); }),
      AllOf(HasSubstr(folder_ / "tokenizer.json"),
            HasSubstr("the split pattern '(x+)+$' ends with: match limit exceeded at byte 0")));
  TokenCacheRequest request;
  request.folder = folder_ / "cache";
  request.tokenizer = tokenizer.get();
  const auto refusal = [&](const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    request.files = find_text_files({folder_ / name});
    return message_of([&] { TokenCache::open_or_build(request); });
  };
  EXPECT_THAT(refusal("a.txt", "<|im|>" + slow),
              AllOf(HasSubstr("a.txt, byte 6: tokenizer.json ("), HasSubstr("'(x+)+$'")));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\": \"low\"}\n{\"text\": \"" + slow + "\"}"),
              AllOf(HasSubstr("a.jsonl, line 2: tokenizer.json ("), HasSubstr("'(x+)+$'")));
}

TEST_F(TokenizerJson, DamagedFilesAreNamed) {
  EXPECT_THAT(refused<IoError>({.added = R"([{"id": "x", "content": "<m>"}])"}),
              HasSubstr("the id of added token '<m>'"));
  EXPECT_THAT(refused<IoError>({.added = R"([{"id": 268}])"}),
              HasSubstr("is not a tokenizer.json"));
  write_file(folder_ / "tokenizer.json", "[1]");
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder_.path()); }),
              HasSubstr("is not a JSON object"));
  std::string json = json_of({});
  write_file(folder_ / "tokenizer.json", json.substr(0, json.size() / 2));
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder_.path()); }),
              HasSubstr("is not a tokenizer.json"));
  json.replace(json.find("\"e r\""), 5, "\"e q\"");
  write_file(folder_ / "tokenizer.json", json);
  EXPECT_THAT(message_of([&] { (void)make_tokenizer(folder_.path()); }),
              HasSubstr("merge \"e q\""));
}

}  // namespace
}  // namespace sluice::testing
