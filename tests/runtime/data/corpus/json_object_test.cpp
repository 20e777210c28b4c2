#include "runtime/data/corpus/json_object.hpp"

#include <array>

#include "runtime/data/json_lines.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

constexpr std::array<std::string_view, 1> kText{"text"};

// The oracle is the other reader of JSON lines.
void expect_same(const std::string& line) {
  const JsonLine oracle = parse_json_line(line, "text");
  const JsonObject object = scan_json_object(line, kText);
  const bool number_alone = oracle.error.find("number overflow") != std::string::npos;
  if (number_alone) return;
  EXPECT_EQ(object.error.empty(), oracle.is_json && oracle.is_object)
      << line << ": " << object.error;
  if (!object.error.empty()) return;
  EXPECT_EQ(object.values[0].has_value(), oracle.has_key) << line;
  if (!object.values[0]) return;
  const auto text = json_text(object.values[0]->in(line));
  EXPECT_EQ(text.has_value(), oracle.error.empty()) << line;
  EXPECT_EQ(text.value_or(""), oracle.error.empty() ? oracle.text : "") << line;
}

TEST(JsonObject, ValuesLieWhereTheyLie) {
  const std::string line = R"( {"a": [1, {"text": 2}], "te\u0078t" : "x\"y" , "b": {}} )";
  const JsonObject object = scan_json_object(line, kText);
  EXPECT_EQ(object.error, "");
  EXPECT_EQ(object.values[0]->in(line), R"("x\"y")");
  EXPECT_EQ(json_text(R"("\ud83d\udc4d \uD83D \\ud83d \ud83dx\u0041\n\/")"),
            "\U0001F44D \uFFFD \\ud83d \uFFFDxA\n/");
  EXPECT_EQ(json_text("12"), std::nullopt);
}

TEST(JsonObject, AgreesWithTheOtherReader) {
  const std::vector<std::string> lines{R"({"text": "a"})",
                                       R"({"text": "a", "text": "b"})",
                                       R"({"text": "a", "text": 1})",
                                       R"({"a": 1e400, "text": "a"})",
                                       "{}",
                                       "{ }",
                                       "[]",
                                       "3",
                                       "",
                                       "{",
                                       "}",
                                       R"({"text")",
                                       R"({"text":)",
                                       R"({"text": "a")",
                                       R"({"text": "a",})",
                                       R"({"text": "a"} x)",
                                       R"({"text": nul})",
                                       R"({"text": null})",
                                       R"({"text": true, "b": false})",
                                       R"({"text": [1, [2, {"a": []}], "x"]})",
                                       R"({"a": [1,]})",
                                       R"({"a": [,1]})",
                                       R"({"a" 1})",
                                       R"({a: 1})",
                                       R"({"a": 01})",
                                       R"({"a": -})",
                                       R"({"a": -0.5e+10})",
                                       R"({"a": 1.})",
                                       R"({"a": .5})",
                                       R"({"a": 1e})",
                                       R"({"a": 1e999})",
                                       R"({"text": "\x"})",
                                       R"({"text": "\u12"})",
                                       R"({"text": "\u12g4"})",
                                       R"({"text": "\uDC00\uD800"})",
                                       "{\"text\": \"a\tb\"}",
                                       "{\"text\": \"\xff\"}",
                                       "{\"\xc3\": 1}",
                                       "{\"text\": \"\xc3\xa9\"}",
                                       R"({"a": {"b": {"text": "x"}}})",
                                       R"({"a": ]})",
                                       R"({"a": [}])",
                                       R"({"text": "a" "b"})"};
  std::mt19937 random(2);
  for (const std::string& line : lines) {
    expect_same(line);
    for (int i = 0; i < 200 && !line.empty(); ++i) {
      std::string changed = line;
      static constexpr std::string_view kBytes = "{}[]\",:\\u0e-. tn\xc3\xa9";
      const std::size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          changed[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          changed.erase(at, 1);
          break;
        default:
          changed.insert(at, 1, kBytes[random() % kBytes.size()]);
      }
      expect_same(changed);
    }
  }
}

TEST(JsonObject, StringsAreWrittenAsTheyAreRead) {
  std::string all;
  for (char c = 1; c < 0x7F; ++c) all += c;
  const std::string text = std::string("\0", 1) + all + "\u00e9\U0001F44D";
  std::string written;
  append_json_string(text, written);
  EXPECT_EQ(json_text(written), text);
  EXPECT_EQ(scan_json_object("{\"text\":" + written + "}", kText).error, "");
  written.clear();
  append_json_string("a\xff\"\x1f\b", written);
  EXPECT_EQ(written, "\"a\uFFFD\\\"\\u001f\\b\"");
}

TEST(JsonObject, DeepNestingIsNoRecursion) {
  const std::size_t depth = 1U << 20U;
  const std::string open(depth, '['), close(depth, ']');
  EXPECT_EQ(scan_json_object("{\"a\":" + open + close + "}", kText).error, "");
  EXPECT_THAT(scan_json_object("{\"a\":" + open, kText).error,
              ::testing::HasSubstr("the line ends, a value expected"));
}

}  // namespace
}  // namespace sluice::testing
