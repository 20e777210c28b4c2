// Hjson as hjson.load reads it: values, places, and every refusal with its message.
#include "configs/migrate/hjson_reader.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::migrate {
namespace {

struct Taken {
  std::string text;
  std::string json;
};

// The right column is what hjson.loads of Python returns.
const std::vector<Taken>& taken() {
  static const std::vector<Taken> cases{
      {"", "{}"},
      {"// nothing\n# nothing /* { */\n", "{}"},
      {"{}", "{}"},
      {"\xef\xbb\xbf{\"a\": 1}", "{\"a\": 1}"},
      {"{\"a\": [1, true, null, \"x\"]}", "{\"a\": [1, true, null, \"x\"]}"},
      {"a: 1\nb: 2", "{\"a\": 1, \"b\": 2}"},
      {"{a: 1,\n 'b': 2,}", "{\"a\": 1, \"b\": 2}"},
      {"{\"a\": \"x\" \"b\": 2}", "{\"a\": \"x\", \"b\": 2}"},
      {"{a\n: 1}", "{\"a\": 1}"},
      {"{a#b: 1}", "{\"a#b\": 1}"},
      {"{a: null#c\n}", "{\"a\": null}"},
      {"{a: /* x */ 5e8 // y\n}", "{\"a\": 5e8}"},
      {"{a: -0.5, b: 1E+3, c: -0}", "{\"a\": -0.5, \"b\": 1E+3, \"c\": -0}"},
      {"{a: .5\n b: 01\n c: +1\n d: 1_000\n}",
       "{\"a\": \".5\", \"b\": \"01\", \"c\": \"+1\", \"d\": \"1_000\"}"},
      {"{a: tru}\n}", "{\"a\": \"tru}\"}"},
      {"{a: two words, and a comma \n}", "{\"a\": \"two words, and a comma\"}"},
      {"{a: [\n x\n y\n]}", "{\"a\": [\"x\", \"y\"]}"},
      {"{a: [1\n2]}", "{\"a\": [1, 2]}"},
      {"{\"\\u00e9\\n\": 'it\\'s \"x\"'}", "{\"\xc3\xa9\\u000a\": \"it's \\\"x\\\"\"}"},
      {"{a: \"\\ud83d\\ude00\"}", "{\"a\": \"\xf0\x9f\x98\x80\"}"},
      {"a: '''x\n   y'''", "{\"a\": \"x\\u000ay\"}"},
      {"{\n  a: '''\n    one\n      two\n    '''\n}", "{\"a\": \"one\\u000a two\"}"},
      {"{\n  a:\n    '''\n    one\n      two\n    '''\n}", "{\"a\": \"one\\u000a  two\"}"},
      {"{a: {b: {c: []}}}", "{\"a\": {\"b\": {\"c\": []}}}"},
  };
  return cases;
}

TEST(Hjson, Takes) {
  for (const Taken& text : taken()) {
    SCOPED_TRACE(text.text);
    const HjsonDocument document = read_hjson(text.text);
    ASSERT_TRUE(document.problems.empty()) << document.problems[0].what;
    EXPECT_EQ(to_json(document.root), text.json);
  }
}

// The places of Python's numbers: int or float decides what DeepSpeed takes.
TEST(Hjson, NumbersAreIntOrFloatAsInPython) {
  const HjsonDocument document = read_hjson(
      "{a: 5e8, b: 1.0, c: 1e12, d: 0.5, e: 9223372036854775807, f: 1e19, g: 12\n"
      "h: 99999999999999999999}");
  ASSERT_TRUE(document.problems.empty());
  const HjsonNode& root = document.root;
  EXPECT_EQ(root.find("a")->integer, 500'000'000);
  EXPECT_FALSE(root.find("a")->is_float);
  EXPECT_EQ(root.find("b")->integer, 1);
  EXPECT_FALSE(root.find("b")->is_float);
  EXPECT_EQ(root.find("c")->integer, 1'000'000'000'000);
  EXPECT_TRUE(root.find("c")->is_float);
  EXPECT_FALSE(root.find("d")->integer.has_value());
  EXPECT_DOUBLE_EQ(root.find("d")->number, 0.5);
  EXPECT_EQ(root.find("e")->integer, 9223372036854775807);
  EXPECT_FALSE(root.find("f")->integer.has_value());
  EXPECT_FALSE(root.find("g")->is_float);
  EXPECT_FALSE(root.find("h")->integer.has_value());
  EXPECT_FALSE(root.find("h")->is_float);
}

TEST(Hjson, KeysAndValuesHavePlaces) {
  const HjsonDocument document = read_hjson("{\n  // c\n  \"a\":\n    [1,\n     {b: 2}]\n}");
  ASSERT_TRUE(document.problems.empty());
  const HjsonEntry& a = document.root.entries.at(0);
  EXPECT_EQ(a.line, 3);
  EXPECT_EQ(a.column, 3);
  EXPECT_EQ(a.value.line, 4);
  EXPECT_EQ(a.value.column, 5);
  const HjsonEntry& b = a.value.items.at(1).entries.at(0);
  EXPECT_EQ(b.line, 5);
  EXPECT_EQ(b.column, 7);
  EXPECT_EQ(b.value.column, 10);
}

struct Wrong {
  std::string text;
  std::string message;
};

const std::vector<Wrong>& wrong() {
  static const std::vector<Wrong> cases{
      {"{", "1:1: the object is not closed; write '}'"},
      {"{\"a\": 1", "1:1: the object is not closed; write '}'"},
      {"{\"a\"}",
       "1:5: expected ':' after the key 'a', found '}'; write a colon between key and value"},
      {"{\"a\" 1}",
       "1:6: expected ':' after the key 'a', found '1'; write a colon between key and value"},
      {"{a b: 1}",
       "1:4: expected ':' after the key 'a', found 'b'; write a colon between key and value"},
      {"{:1}",
       "1:2: expected a key, found ':'; write a key, with quotes around a key that holds {}[],: or "
       "spaces"},
      {"{,}",
       "1:2: expected a key, found ','; write a key, with quotes around a key that holds {}[],: or "
       "spaces"},
      {"{\"a\":1,,\"b\":2}",
       "1:8: expected a key, found ','; write a key, with quotes around a key that holds {}[],: or "
       "spaces"},
      {"{\"a\":}",
       "1:6: expected a value, found '}'; write a value, with quotes around text that starts with "
       "one of {}[],:"},
      {"{\"a\":,}",
       "1:6: expected a value, found ','; write a value, with quotes around text that starts with "
       "one of {}[],:"},
      {"{\"a\":\n}",
       "2:1: expected a value, found '}'; write a value, with quotes around text that starts with "
       "one of {}[],:"},
      {"{\"a\": [1,,2]}",
       "1:10: expected a value, found ','; write a value, with quotes around text that starts with "
       "one of {}[],:"},
      {"{\"a\": [1 2]}",
       "1:8: text without quotes runs to the end of its line, with commas and brackets; write "
       "quotes around the text, or true, false, null in small letters"},
      {"{\"a\": [", "1:7: the list is not closed; write ']'"},
      {"{\"a\": 1}}",
       "1:9: found '}' after the end of the configuration; remove the text, or the bracket before "
       "the text"},
      {"{\"a\": 1} x",
       "1:10: found 'x' after the end of the configuration; remove the text, or the bracket before "
       "the text"},
      {"[1, 2]", "1:1: the configuration is a list; DeepSpeed takes an object { \"key\": value }"},
      {"12",
       "1:3: expected ':' after the key '12', found the end of the text; write a colon between key "
       "and value"},
      {"\"x\"",
       "1:4: expected ':' after the key 'x', found the end of the text; write a colon between key "
       "and value"},
      {"true",
       "1:5: expected ':' after the key 'true', found the end of the text; write a colon between "
       "key and value"},
      {"{\"a\": True}",
       "1:7: text without quotes runs to the end of its line, with commas and brackets; write "
       "quotes around the text, or true, false, null in small letters"},
      {"{\"a\": abc, \"b\": 1}",
       "1:7: text without quotes runs to the end of its line, with commas and brackets; write "
       "quotes around the text, or true, false, null in small letters"},
      {"{\"a\": \"x}", "1:7: the text is not closed; write the closing quote"},
      {"{\"a\": \"x\ny\"}",
       "1:7: the text is not closed on its line; write the closing quote, or \\n for a line end"},
      {"{\"a\": \"x\ty\"}", "1:9: a tab in quoted text; write \\t"},
      {"{\"a\": \"\\x\"}",
       "1:8: the escape \\ with 'x' does not exist; write \\\\ for a backslash"},
      {"{\"a\": \"\\u12\"}", "1:8: \\u without four hexadecimal digits; write for example \\u00e9"},
      {"{\"a\": \"\\ud800\"}", "1:8: half of a surrogate pair; write both halves"},
      {"{\"a\": \"\\", "1:7: the text is not closed; write the closing quote"},
      {"{\"a\": '''x", "1:7: the ''' text is not closed; write ''' at its end"},
      {"{\"a\": /* x", "1:7: the comment is not closed; write */ at the end of the comment"},
      {"{\"a\": 1e999}",
       "1:7: the number '1e999' is beyond the range of a double; write a smaller number"},
      {"{\"a\": 1, \"a\": 2}",
       "1:10: the key 'a' is given twice, first in line 1; remove one of the two"},
      {"{\"a\": {\"b\": 1,\n\"b\": 2}, \"a\": 1}",
       "2:1: the key 'b' is given twice, first in line 1; remove one of the two\n2:10: the key 'a' "
       "is given twice, first in line 1; remove one of the two"},
      {"{\"lr\": {{ lr }}}",
       "1:8: the file is a template: '{{ lr }}' is a placeholder; fill the template in first, then "
       "migrate the result"},
      {"{\"lr\": \"{{ lr }}\"}",
       "1:9: the file is a template: '{{ lr }}' is a placeholder; fill the template in first, then "
       "migrate the result"},
      {"{\"lr\": ${LR}, \"b\": 1}",
       "1:8: the file is a template: '${LR}' is a placeholder; fill the template in first, then "
       "migrate the result"},
      {"nvme: \"${SCRATCH}/x\"",
       "1:8: the file is a template: '${SCRATCH}' is a placeholder; fill the template in first, "
       "then migrate the result"},
      {"{\n\"lr\": <% lr %>\n}",
       "2:7: the file is a template: '<% lr %>' is a placeholder; fill the template in first, then "
       "migrate the result"},
      {"{\"lr\": %%LR%%}",
       "1:8: the file is a template: '%%LR%%' is a placeholder; fill the template in first, then "
       "migrate the result"},
      {"{% if x %}\n{\"a\": 1}\n{% endif %}",
       "1:1: the file is a template: '{% if x %}' is a placeholder; fill the template in first, "
       "then migrate the result"},
      {"{\"a\": \"\377\"}", "1:8: a byte that is not UTF-8; save the file as UTF-8"},
      {"{\"a\": \"\001\"}", "1:8: a control character; remove it, a configuration is plain text"},
  };
  return cases;
}

TEST(Hjson, Refuses) {
  for (const Wrong& text : wrong()) {
    SCOPED_TRACE(text.text);
    std::string message;
    for (const HjsonProblem& problem : read_hjson(text.text).problems) {
      message += std::to_string(problem.line) + ":" + std::to_string(problem.column) + ": " +
                 problem.what + "\n";
    }
    EXPECT_EQ(message, text.message + "\n");
  }
}

TEST(Hjson, Limits) {
  const auto message = [](const std::string& text) {
    const HjsonDocument document = read_hjson(text);
    return document.problems.empty() ? "" : document.problems[0].what;
  };
  const auto nested = [](std::size_t depth) {
    return "{a:" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(message(nested(kMaxHjsonDepth - 1)), "");
  EXPECT_EQ(message(nested(kMaxHjsonDepth)),
            "brackets are nested more than 200 levels deep; a configuration has at most 10 levels");
  EXPECT_EQ(message(nested(100'000)), message(nested(kMaxHjsonDepth)));
  std::string many = "{a:[";
  for (std::size_t i = 0; i < kMaxHjsonValues; ++i) many += "1,";
  EXPECT_EQ(message(many + "]}"), "more than 100000 values; a configuration has some dozens");
  EXPECT_EQ(message(std::string(kMaxHjsonBytes + 1, ' ')),
            "the text is larger than 4 MiB; a configuration has some kilobytes");
}

}  // namespace
}  // namespace sluice::migrate
