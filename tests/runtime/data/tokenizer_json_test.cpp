#include <cstdio>

#include "runtime/data/chat/chat_template.hpp"
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

// As in transformers 5.24: a token that is not special stays a token, and a special one is found
// and left as text, so no shorter token is found within.
TEST_F(TokenizerJson, SplitSpecialTokensMakesSpecialTokensText) {
  Parts parts;
  parts.added = R"([{"id": 268, "content": "<|endoftext|>", "special": true},
                    {"id": 269, "content": "<|e"}, {"id": 270, "content": "<|im|>"}])";
  const auto whole = make(parts);
  write_file(folder_ / "tokenizer_config.json", R"({"split_special_tokens": true})");
  const auto split = make(parts);
  EXPECT_FALSE(whole->splits_special());
  EXPECT_TRUE(split->splits_special());
  EXPECT_THAT(whole->encode("low<|endoftext|>"), ElementsAre(257, 268));
  EXPECT_THAT(split->encode("low<|im|><|elow"), ElementsAre(257, 270, 269, 257));
  const std::string text = "low<|endoftext|>";
  const auto ids = split->encode(text);
  EXPECT_GT(ids.size(), 5U);
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains(::testing::AnyOf(268, 269))));
  EXPECT_EQ(split->decode(ids), text);
  EXPECT_EQ(split->end_of_text(), 268);
  // A chat is encoded alike, also of vocab.json.
  EXPECT_EQ(encode_chat(*split, {text, {}}).ids, ids);
  write_small_gpt2(folder_ / "gpt2");
  EXPECT_THAT(encode_chat(*make_tokenizer(folder_ / "gpt2"), {text, {}}).ids,
              ElementsAre(257, 268));
  write_file(folder_ / "gpt2/tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_EQ(encode_chat(*make_tokenizer(folder_ / "gpt2"), {text, {}}).ids, ids);
  // An old cache is not taken; the file is the same.
  EXPECT_NE(split->document_fingerprint(), whole->document_fingerprint());
  EXPECT_EQ(split->fingerprint(), whole->fingerprint());
}

// transformers adds such tokens to those of the file.
TEST_F(TokenizerJson, TokensThatOnlyTheFilesBesideDeclareAreNamed) {
  const auto warning = [&] {
    std::string warnings;
    for (const std::string& line : logged_by([&] { (void)make({}); })) {
      if (line.find("encoded as text") != std::string::npos) warnings += line;
    }
    return warnings;
  };
  write_file(folder_ / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(warning(), "");
  write_file(folder_ / "tokenizer_config.json",
             R"({"eos_token": "<|endoftext|>", "pad_token": "<p>", "extra_special_tokens": ["<x>"],
                 "additional_special_tokens": ["<a>", {"content": "<|im|>"}]})");
  write_file(folder_ / "added_tokens.json", R"({"<j>": 271, "<p>": 272})");
  EXPECT_EQ(warning(), folder_ / "tokenizer.json" +
                           ": added_tokens lacks '<p>', '<a>', '<x>', '<j>', which the files "
                           "beside it declare: they are encoded as text. transformers recognises "
                           "them; save the folder with it, "
                           "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER), which "
                           "adds them to tokenizer.json");
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
  EXPECT_THAT(refused({.type = "WordPiece"}),
              AllOf(HasSubstr("tokenizer.json: model WordPiece is not supported"),
                    HasSubstr("the ids would differ")));
  EXPECT_THAT(refused({.model_more = R"(, "end_of_word_suffix": "</w>")"}),
              HasSubstr("model.end_of_word_suffix = \"</w>\""));
  EXPECT_THAT(refused({.type = "Unigram"}), HasSubstr("model Unigram with ByteLevel"));
  EXPECT_THAT(refused({.normalizer = R"({"type": "BertNormalizer"})"}),
              HasSubstr("normalizer BertNormalizer"));
  EXPECT_THAT(refused({.decoder = R"({"type": "CTC"})"}), HasSubstr("decoder CTC"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "UnicodeScripts"})"}),
              HasSubstr("pre_tokenizer UnicodeScripts"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
                        {"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits"}]})"}),
              HasSubstr("pre_tokenizer Digits behind ByteLevel"));
  EXPECT_THAT(refused({.pre_tokenizer = R"({"type": "Split", "pattern": {"Regex": "a"},
                                           "behavior": "Sideways", "invert": false})"}),
              HasSubstr("behavior Sideways"));
  EXPECT_THAT(refused({.post_processor = R"({"type": "Odd"})"}), HasSubstr("post_processor Odd"));
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  EXPECT_THAT(refused({.normalizer = deep}), HasSubstr("nested too deeply"));
}

TEST_F(TokenizerJson, NormalisersChangeTheText) {
  const auto text_of = [&](const std::string& normalizer, const std::string& text) {
    const auto made = make({.normalizer = normalizer, .added = "[]"});
    return made->decode(made->encode(text));
  };
  EXPECT_EQ(text_of(R"({"type": "NFC"})", "e\u0301\xff"), "\u00e9\xff");  // bytes stay
  EXPECT_EQ(text_of(R"({"type": "NFD"})", "\u00e9"), "e\u0301");
  EXPECT_EQ(text_of(R"({"type": "NFKC"})", "\ufb01 \u212b"), "fi \u00c5");
  EXPECT_EQ(text_of(R"({"type": "Lowercase"})", "A\u0130\u00c9"), "ai\u0307\u00e9");
  EXPECT_EQ(text_of(R"({"type": "StripAccents"})", "e\u0301a"), "ea");
  EXPECT_EQ(
      text_of(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \u00a0a b\n"),
      "a b");
  EXPECT_EQ(
      text_of(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"})", "a   b c"),
      "a_b c");
  EXPECT_EQ(text_of(R"({"type": "Sequence", "normalizers": [
      {"type": "Replace", "pattern": {"String": "aa"}, "content": "b"},
      {"type": "Prepend", "prepend": "> "}]})",
                    "aaa"),
            "> ba");
}

TEST_F(TokenizerJson, AddedTokensTakeSpacesAndKeepToWords) {
  const auto made = make({.added = R"([{"id": 268, "content": "<l>", "lstrip": true},
      {"id": 269, "content": "<r>", "rstrip": true},
      {"id": 270, "content": "one", "single_word": true}])"});
  EXPECT_THAT(made->encode("a \n<l> b"), ElementsAre('a', 268, ' ', 'b'));
  EXPECT_THAT(made->encode("a<r> \u00a0b"), ElementsAre('a', 269, 'b'));
  EXPECT_THAT(made->encode("<r>  <l>"), ElementsAre(269, 268));
  EXPECT_THAT(made->encode("one"), ElementsAre(270));
  EXPECT_THAT(made->encode("(one)"), ElementsAre('(', 270, ')'));
  EXPECT_EQ(made->encode("ones").front(), 'o');
  EXPECT_EQ(made->encode("\u00e9one").back(), 'e');
}

// Llama 2's layout: a mark for each space, and bytes for characters without a piece.
TEST_F(TokenizerJson, CharactersWithByteFallback) {
  std::string vocab = R"({"<unk>": 0, "<s>": 1, "</s>": 2)";
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    vocab += ", \"" + std::string(name) + "\": " + std::to_string(3 + byte);
  }
  vocab += ", \"\u2581\": 259, \"l\": 260, \"o\": 261, \"lo\": 262, \"\u2581lo\": 263}";
  const std::string file = R"({"added_tokens": [{"id": 1, "content": "<s>"}], "normalizer":
      {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
       {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "decoder": {"type": "Sequence", "decoders": [
       {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
       {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
       "merges": ["l o", "\u2581 lo"], "vocab": )" +
                           vocab + "}}";
  write_file(folder_ / "tokenizer.json", file);
  const auto made = make_tokenizer(folder_.path());
  EXPECT_EQ(made->end_of_text(), 2);
  EXPECT_THAT(made->encode("lo lo\u00e9"), ElementsAre(263, 263, 3 + 0xc3, 3 + 0xa9));
  EXPECT_THAT(made->encode("lo<s>lo"), ElementsAre(263, 1, 263));
  EXPECT_THAT(made->encode_continued(" lo"), ElementsAre(263));
  EXPECT_THAT(made->encode_continued("lo"), ElementsAre(262));
  const std::vector<std::int32_t> ids{263, 263, 3 + 0xc3, 3 + 0xa9};
  EXPECT_EQ(made->decode(ids), "lo lo\u00e9");
  EXPECT_EQ(made->decode_continued(ids), " lo lo\u00e9");
  EXPECT_THAT(made->encode("\xff"), ElementsAre(259, 3 + 0xef, 3 + 0xbf, 3 + 0xbd));
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
