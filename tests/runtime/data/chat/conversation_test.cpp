#include "runtime/data/chat/conversation.hpp"

#include <algorithm>

#include "tests/runtime/data/chat/chat_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;

struct Reading {
  std::vector<std::string> conversations, left_out;
  ConversationCounts counts;
};

std::string conversation_text(const Conversation& conversation) {
  const std::string line = std::to_string(conversation.line) + ": ";
  if (conversation.is_completion())
    return line + conversation.prompt + "|" + conversation.completion;
  return line + jinja::to_json(conversation.messages, {});
}

Reading read_text(const std::string& text, ConversationFormat format = ConversationFormat::kAuto) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", text);
  Reading reading;
  reading.counts = read_conversations(
      find_text_files({folder / "a.jsonl"})[0], format,
      {[&](Conversation&& c) { reading.conversations.push_back(conversation_text(c)); },
       [&](const LeftOut& l) {
         reading.left_out.push_back(std::to_string(l.line) + ": " +
                                    std::string(name_of(l.problem)) + ": " + l.reason);
       }});
  return reading;
}

const std::string kHi =
    R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";

TEST(Conversation, FormatsAreRecognised) {
  EXPECT_THAT(read_text(R"({"messages": )" + kHi + "}\n").conversations, ElementsAre("1: " + kHi));
  EXPECT_THAT(
      read_text(R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})")
          .conversations,
      ElementsAre("1: " + kHi));
  EXPECT_THAT(read_text(R"({"instruction":"q","input":"","output":"a"})").conversations,
              ElementsAre("1: " + kHi));
  EXPECT_THAT(
      read_text(R"({"instruction":"q","input":"i","output":"a","system":"s"})").conversations,
      ElementsAre(R"(1: [{"role": "system", "content": "s"}, {"role": "user", "content": )"
                  R"("q\n\ni"}, {"role": "assistant", "content": "a"}])"));
  EXPECT_THAT(read_text(R"({"prompt":"p","completion":"c"})").conversations, ElementsAre("1: p|c"));
}

TEST(Conversation, AFileOfAnotherKindIsRefusedByName) {
  for (const std::string mark : {"\xFF\xFE", "\xFE\xFF"}) {
    EXPECT_THAT(message_of([&] { (void)read_text(mark + std::string("{\0", 2)); }),
                ::testing::HasSubstr("a.jsonl is UTF-16; convert it (iconv -f UTF-16 -t UTF-8)"));
  }
  // A zero byte damages its line alone.
  EXPECT_EQ(read_text(std::string("\0\n", 2) + R"({"prompt":"p","completion":"c"})").counts.read,
            1);
}

TEST(Conversation, ASystemTextAndEarlierTurnsAreMessages) {
  const std::string system = R"([{"role": "system", "content": "s"}, )";
  const std::string with_system = system + kHi.substr(1);
  EXPECT_THAT(
      read_text(
          R"({"system":"s","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})")
          .conversations,
      ElementsAre("1: " + with_system));
  EXPECT_THAT(read_text(R"({"system": "s", "messages": )" + kHi + "}").conversations,
              ElementsAre("1: " + with_system));
  EXPECT_THAT(read_text(R"({"system": "t", "messages": )" + with_system + "}").conversations,
              ElementsAre("1: " + with_system));
  EXPECT_THAT(read_text(R"({"system": " ", "messages": )" + kHi + "}").conversations,
              ElementsAre("1: " + kHi));
  const std::string alpaca = R"({"instruction":"q","output":"a","history":)";
  EXPECT_THAT(read_text(alpaca + R"([["b","c"]],"system":"s"})").conversations,
              ElementsAre("1: " + system +
                          R"({"role": "user", "content": "b"}, )"
                          R"({"role": "assistant", "content": "c"}, )" +
                          kHi.substr(1)));
  EXPECT_THAT(read_text(alpaca + "[]}").conversations, ElementsAre("1: " + kHi));
  EXPECT_THAT(
      read_text(alpaca + "[[\"b\"]]}\n" + alpaca + "[[\"b\",\" \"]]}\n" + alpaca + "3}\n" +
                R"({"instruction":"q","output":"a","system":1})")
          .left_out,
      ElementsAre("1: of another shape: a turn of 'history' is no pair of strings, "
                  "question and answer",
                  "2: with an empty answer: an answer of 'history' is empty",
                  "3: of another shape: the value of 'history' is an integer, not a list",
                  "4: of another shape: the value of 'system' is an integer, not a string"));
}

TEST(Conversation, AWeightIs0Or1) {
  const auto talk = [](const std::string& weight) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": )"
           R"("a", "weight": )" +
           weight + "}]}\n";
  };
  const Reading reading =
      read_text(talk("1") + talk("1.0") + talk("null") + talk("0") + talk("0.5") + talk("\"0\""));
  EXPECT_EQ(reading.conversations.size(), 3U);
  EXPECT_THAT(reading.left_out,
              ElementsAre("4: without an answer: every answer has weight 0",
                          "5: of another shape: message 2: its weight is neither 0 nor 1",
                          "6: of another shape: message 2: its weight is neither 0 nor 1"));
}

TEST(Conversation, AListHasTheLinesOfItsObjects) {
  const std::string list =
      "[\n {\"prompt\": \"[\\\"\",\n  \"completion\": \"c\"},\n {\"prompt\": 1},"
      "\n {broken},\n {\"prompt\": \"x\", \"completion\": \"y\"}\n]\n";
  const Reading reading = read_text(list);
  EXPECT_THAT(reading.conversations, ElementsAre("2: [\"|c", "6: x|y"));
  EXPECT_THAT(reading.left_out,
              ElementsAre("4: of another shape: the value of 'prompt' is an integer, not a string",
                          "5: broken: not valid JSON at byte 2"));
}

TEST(Conversation, ADamagedListIsReported) {
  EXPECT_THAT(read_text(R"([{"prompt":"p","completion":"c"})").left_out,
              ElementsAre("1: broken: the list has no end ']'"));
  EXPECT_THAT(read_text("[{\"prompt\":\"p\",\"completion\":\"c\"}]\nx").left_out,
              ElementsAre("1: broken: something follows the list's end"));
}

TEST(Conversation, EachObjectIsReadOrCounted) {
  const Reading reading = read_text(
      R"({"messages": )" + kHi + "}\n\n{\n" +
      R"({"messages": [{"role": "narrator", "content": "x"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": " "}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "q"}]})"
      "\n"
      R"({"other": 1})"
      "\n[1]\n"
      R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"
      "\n"
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": 1}]}]})");
  EXPECT_EQ(reading.conversations.size(), 2U);
  EXPECT_THAT(
      reading.left_out,
      ElementsAre("3: broken: not valid JSON at byte 2",
                  "4: with an unknown role: message 1: its role 'narrator' is unknown (known: "
                  "system, developer, user, assistant, tool)",
                  "5: with an empty answer: message 2: the answer is empty",
                  "6: without an answer: no message of the assistant",
                  "7: of another shape: no key 'messages'", "8: broken: a list, not a JSON object",
                  "9: of another shape: message 1: a part of its content is no text"));
  EXPECT_EQ(reading.counts.text(),
            "2 conversations; left out: 2 broken, 2 of another shape, 1 with an unknown role, 1 "
            "with an empty answer, 1 without an answer");
}

TEST(Conversation, AnUnknownFormatIsRefused) {
  const std::string message =
      message_of<ConfigError>([] { (void)read_text("{\"text\": \"x\"}\n"); });
  EXPECT_TRUE(message.ends_with(
      "a.jsonl, line 1: no format of conversations has these keys; expected messages, "
      "conversations, instruction and output, or prompt and completion"))
      << message;
}

TEST(Conversation, ValuesOfJsonHaveLimits) {
  EXPECT_EQ(parse_json_value(std::string(101, '[') + std::string(101, ']')).error,
            "nested more than 100 levels deep");
  EXPECT_EQ(parse_json_value(std::string(100, '[') + std::string(100, ']')).error, "");
  EXPECT_EQ(parse_json_value("[9223372036854775808]").error,
            "the integer 9223372036854775808 is too large for 64 bits");
  EXPECT_EQ(parse_json_value("[1000000000000000000000]").error,
            "the integer 1000000000000000000000 is too large for 64 bits");
  EXPECT_EQ(parse_json_value("[1e400]").error, "the number 1e400 is too large for 64 bits");
  EXPECT_EQ(jinja::to_json(value_from(R"({"b":1,"a":"\ud83d","b":2.0})"), {}),
            "{\"b\": 2.0, \"a\": \"\uFFFD\"}");
}

}  // namespace
}  // namespace sluice::testing
