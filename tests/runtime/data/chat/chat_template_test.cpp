#include "runtime/data/chat/chat_template.hpp"

#include <cstdlib>

#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/runtime/data/chat/chat_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;

const std::string kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const std::string kTalk = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                          R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}])";

std::string ids_text(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return "[" + text + "]";
}

// Renders, encodes and masks a case as transformers does, and says where it differs.
std::string difference(const ChatCase& example, const Tokenizer& tokenizer) {
  const jinja::Template compiled(template_text(example.text("template")));
  jinja::Dict variables = *example.at("variables")->as_dict();
  variables.set("messages", template_messages(*variables.find("messages")));
  jinja::Rendered rendered;
  try {
    rendered = compiled.render(variables, {.now = fixed_time()});
  } catch (const jinja::RenderError& error) {
    return example.at("error") != nullptr ? "" : error.what();
  }
  if (example.at("error") != nullptr) return "no error";
  if (rendered.text != example.text("text")) return "text: " + rendered.text;
  if (example.at("ids") == nullptr) return "";
  RenderedChat chat{rendered.text, {}};
  for (const jinja::Span& span : rendered.generated) {
    if (span.begin < span.end) chat.learned.push_back(span);
  }
  const LearnedTokens tokens = encode_chat(tokenizer, chat);
  if (ids_text(tokens.ids) != jinja::to_json(*example.at("ids"), {})) return "ids";
  std::string mask;
  for (const std::uint8_t learned : tokens.learned) mask += learned != 0 ? '1' : '0';
  return mask == example.text("mask") ? "" : "mask: " + mask;
}

void expect_like_transformers(const std::string& path, std::size_t least) {
  const auto tokenizer = make_tokenizer(golden_chat("tokenizer.json"));
  const std::vector<ChatCase> cases = chat_cases(path);
  EXPECT_GE(cases.size(), least);
  for (const ChatCase& example : cases) {
    EXPECT_EQ(difference(example, *tokenizer), "")
        << example.text("template") << ": " << jinja::to_json(*example.at("variables"), {});
  }
}

TEST(ChatTemplate, IdsAndMasksAreThoseOfTransformers) {
  expect_like_transformers(golden_chat("expected.jsonl"), 9 * 6);
}

TEST(ChatTemplate, CasesOfAFolderGivenByTheEnvironment) {
  const char* path = std::getenv("SLUICE_CHAT_CASES");
  if (path == nullptr) GTEST_SKIP() << "SLUICE_CHAT_CASES names no file of chat_oracle.py";
  expect_like_transformers(path, 1);
}

// A mark before a text and behind each special token is a token, or part of one, without a byte of
// the text.
TEST(ChatTemplate, IdsAndMasksOfTokenizersOfCharactersAreThoseOfTransformers) {
  for (const ChatCase& example : chat_cases(golden_chat("characters.jsonl"))) {
    const std::string name = example.text("tokenizer");
    const auto tokenizer = make_tokenizer(std::string(SLUICE_SOURCE_DIR) +
                                          "/tests/golden/tokenizers/" + name + ".json");
    RenderedChat chat{example.text("text"), {}};
    for (const jinja::Value& span : example.at("spans")->as_list()->items) {
      const auto& ends = span.as_list()->items;
      chat.learned.push_back({static_cast<std::size_t>(*ends[0].as_integer()),
                              static_cast<std::size_t>(*ends[1].as_integer())});
    }
    const LearnedTokens made = encode_chat(*tokenizer, chat);
    std::string mask;
    for (const std::uint8_t learned : made.learned) mask += learned != 0 ? '1' : '0';
    const std::string ids = jinja::to_json(*example.at("ids"), {});
    EXPECT_EQ(ids_text(made.ids), ids) << name << ": " << chat.text;
    EXPECT_EQ(mask, example.text("mask")) << name << ": " << chat.text;
    // What is learned changes no id.
    const LearnedTokens all = encode_chat(*tokenizer, {chat.text, {{0, chat.text.size()}}});
    EXPECT_EQ(ids_text(all.ids), ids) << name << ": " << chat.text;
  }
}

TEST(ChatTemplate, AnswersFollowTheirPromptsWhereNoBlockMarksThem) {
  const ChatTemplate chat = chat_template_of(kChatMl);
  const Conversation talk = conversation_from(kTalk);
  EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kAssistant)),
              ElementsAre("b<|im_end|>", "d<|im_end|>"));
  EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kLast)), ElementsAre("d<|im_end|>"));
  const RenderedChat all = chat.learn(talk, TrainOn::kAll);
  EXPECT_THAT(learned_parts(all), ElementsAre(all.text));
}

TEST(ChatTemplate, GenerationBlocksDecideWhereATemplateHasThem) {
  const ChatTemplate chat = chat_template_of(
      "{% for m in messages %}{% if m.role == 'assistant' %}"
      "{% generation %}<{{ m.content }}>{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}");
  const Conversation talk = conversation_from(kTalk);
  EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kAssistant)), ElementsAre("<b>", "<d>"));
  EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kLast)), ElementsAre("<d>"));
}

// The template writes earlier answers otherwise than the last one.
TEST(ChatTemplate, AnAnswerIsItsContentWhereTheTextBeforeDependsOnWhatFollows) {
  const ChatTemplate chat = chat_template_of(
      "{{ messages | length }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>"
      "{% endfor %}");
  EXPECT_THAT(learned_parts(chat.learn(conversation_from(kTalk), TrainOn::kAssistant)),
              ElementsAre("b</s>", "d</s>"));
}

// Thinking is shown in the last answer alone; <|im_end|> is not the eos_token.
TEST(ChatTemplate, AnEarlierAnswerIsLearnedWithTheEndOfItsTurn) {
  const ChatTemplate chat = chat_template_of(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
      "{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  EXPECT_THAT(learned_parts(chat.learn(conversation_from(kTalk), TrainOn::kAssistant)),
              ElementsAre("b<|im_end|>", "<think></think>d<|im_end|>"));
}

TEST(ChatTemplate, ATemplateElsewhereTakesTheTokensOfTheTokenizersFolder) {
  const TempFolder folder;
  write_small_gpt2(folder / "model");
  write_file(folder / "model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "est"})");
  write_file(folder / "chat.jinja",
             "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  const auto tokenizer = make_tokenizer(folder / "model");
  const ChatEncoder encoder(*tokenizer, folder / "model", folder / "chat.jinja", TrainOn::kAll);
  EXPECT_EQ(tokenizer->decode(encoder.encode(conversation_from(kTalk)).ids), "<s>aestbestcestdest");
}

TEST(ChatTemplate, WhiteSpaceAloneEndsNoAnswer) {
  const TempFolder folder;
  write_small_gpt2(folder / "model");
  const auto tokenizer = make_tokenizer(folder / "model");
  const auto ends_answers = [&](const std::string& answer) {
    write_file(folder / "chat.jinja",
               "{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }}\n{% else %}" +
                   answer + "\n{% endif %}{% endfor %}");
    return ChatEncoder(*tokenizer, folder / "model", folder / "chat.jinja", TrainOn::kAssistant)
        .ends_answers();
  };
  EXPECT_TRUE(ends_answers("{{ m.content }}{{ eos_token }}"));
  EXPECT_TRUE(ends_answers("{{ m.content }} ###"));
  EXPECT_FALSE(ends_answers("{{ m.content }}"));
  EXPECT_FALSE(ends_answers("{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}"));
  EXPECT_TRUE(ends_answers("{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"));
}

TEST(ChatTemplate, TokensOfSpecialTokensMapAreTheTemplates) {
  const TempFolder folder;
  write_small_gpt2(folder / "model");
  write_file(folder / "model/tokenizer_config.json",
             R"({"eos_token": "low", "pad_token": "pad", "extra_special_tokens": {"image": "I"}})");
  write_file(folder / "model/special_tokens_map.json",
             R"({"bos_token": {"content": "<s>"}, "eos_token": "est"})");
  const std::string text = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ image }}";
  write_file(folder / "model/chat_template.jinja", text);
  write_file(folder / "other/chat.jinja", text);
  const auto tokenizer = make_tokenizer(folder / "model");
  for (const std::string& source : {std::string(), folder / "other/chat.jinja"}) {
    const ChatEncoder encoder(*tokenizer, folder / "model", source, TrainOn::kAll);
    EXPECT_EQ(tokenizer->decode(encoder.encode(conversation_from(kTalk)).ids), "<s>estpadI");
  }
  write_file(folder / "model/tokenizer_config.json",
             R"({"eos_token": "low", "added_tokens_decoder": {}})");
  const ChatTemplateSource alone = find_chat_template(folder / "model");
  EXPECT_EQ(*alone.tokens.find("eos_token")->as_text(), "low");
  EXPECT_EQ(alone.tokens.find("bos_token"), nullptr);
}

TEST(ChatTemplate, AnAnswerThatCannotBeFoundIsRefused) {
  const ChatTemplate chat = chat_template_of(
      "{{ messages | length }}{% for m in messages %}{{ m.content | length }}{% endfor %}");
  EXPECT_EQ(message_of<jinja::RenderError>(
                [&] { (void)chat.learn(conversation_from(kTalk), TrainOn::kLast); }),
            "the answer in message 4 cannot be told from the text around it; mark answers in the "
            "template with {% generation %}");
  EXPECT_EQ(message_of<jinja::RenderError>([&] {
              (void)chat_template_of(
                  "{{ add_generation_prompt }}{% for m in messages %}"
                  "{% if m.role == 'user' %}x{% endif %}{% endfor %}")
                  .learn(conversation_from(kTalk), TrainOn::kAssistant);
            }),
            "the answer in message 4 cannot be told from the text around it; mark answers in the "
            "template with {% generation %}");
}

TEST(ChatTemplate, AnAnswerOfWeight0IsContext) {
  const Conversation talk = conversation_from(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"one","weight":0},)"
      R"({"role":"user","content":"r"},{"role":"assistant","content":"two","weight":1}])");
  Conversation last = talk;
  last.messages =
      value_from(R"([{"role":"user","content":"q"},{"role":"assistant","content":"one"},)"
                 R"({"role":"assistant","content":"two","weight":0}])");
  const std::string plain =
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}";
  const std::string marked =
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }};{% else %}<a>"
      "{% generation %}{{ m.content }};{% endgeneration %}{% endif %}{% endfor %}";
  for (const std::string& text : {plain, marked}) {
    const ChatTemplate chat = chat_template_of(text);
    EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kAssistant)), ElementsAre("two;"));
    EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kLast)), ElementsAre("two;"));
    EXPECT_THAT(learned_parts(chat.learn(talk, TrainOn::kAll)),
                ElementsAre("<u>q;<a>", "<u>r;<a>two;"));
    EXPECT_EQ(message_of<jinja::RenderError>([&] { (void)chat.learn(last, TrainOn::kLast); }),
              "every answer that is to be learned has weight 0");
  }
  const std::string once =
      "{% generation %}{{ messages[1].content }}{{ messages[3].content }}{% endgeneration %}";
  EXPECT_EQ(message_of<jinja::RenderError>(
                [&] { (void)chat_template_of(once).learn(talk, TrainOn::kAssistant); }),
            "messages have weights, and the template marks 1 answers of 2");
  Conversation question = talk;
  question.messages = value_from(
      R"([{"role":"user","content":"q","weight":0},{"role":"assistant","content":"one"}])");
  EXPECT_THAT(learned_parts(chat_template_of(plain).learn(question, TrainOn::kAssistant)),
              ElementsAre("one;"));
  EXPECT_EQ(message_of<jinja::RenderError>(
                [&] { (void)chat_template_of(plain).learn(question, TrainOn::kAll); }),
            "message 1 has weight 0, which data.train_on: all knows of answers alone");
}

TEST(ChatTemplate, ACompletionIsLearnedWithItsEnd) {
  const auto bytes = make_tokenizer("bytes");
  Conversation pair;
  pair.prompt = "ab";
  pair.completion = "c";
  const LearnedTokens tokens = encode_completion(*bytes, pair, TrainOn::kAssistant);
  EXPECT_THAT(tokens.ids, ElementsAre('a', 'b', 'c', 256));
  EXPECT_THAT(tokens.learned, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(encode_completion(*bytes, pair, TrainOn::kAll).learned, ElementsAre(1, 1, 1, 1));
}

// A token that begins before the span and ends in it is learned.
TEST(ChatTemplate, ATokenAcrossABorderIsLearned) {
  const TempFolder folder;
  write_small_gpt2(folder.path());
  const auto tokenizer = make_tokenizer(folder.path());
  const LearnedTokens tokens = encode_chat(*tokenizer, {"a lowa", {{3, 5}}});
  ASSERT_EQ(tokens.ids.size(), 3U);
  EXPECT_THAT(tokens.learned, ElementsAre(0, 1, 0));
}

TEST(ChatTemplate, IsFoundInAFolderOrAFile) {
  const TempFolder folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"bos_token":{"content":"<b>"},"eos_token":"<e>","pad_token":null,)"
      R"("chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})");
  const ChatTemplateSource config = find_chat_template(folder.path());
  EXPECT_EQ(config.text, "D");
  EXPECT_EQ(config.path, folder / "tokenizer_config.json");
  EXPECT_EQ(*config.tokens.find("bos_token")->as_text(), "<b>");
  EXPECT_EQ(*config.tokens.find("eos_token")->as_text(), "<e>");
  EXPECT_EQ(config.tokens.find("pad_token"), nullptr);
  write_file(folder / "chat_template.jinja", "J");
  const ChatTemplateSource own = find_chat_template(folder.path());
  EXPECT_EQ(own.text, "J");
  EXPECT_EQ(*own.tokens.find("eos_token")->as_text(), "<e>");
  EXPECT_EQ(find_chat_template(folder / "tokenizer_config.json").text, "D");
}

TEST(ChatTemplate, SaysWhatIsMissing) {
  const TempFolder folder;
  EXPECT_EQ(message_of<ConfigError>([&] { (void)find_chat_template(folder.path()); }),
            folder.path() +
                " has neither chat_template.jinja nor tokenizer_config.json; name a file with "
                "data.chat_template (of a command: --template)");
  write_file(folder / "tokenizer_config.json", "{}");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)find_chat_template(folder.path()); }),
            folder /
                "tokenizer_config.json has no chat_template; name a file, as "
                "chat_template.jinja of the model, with data.chat_template (of a command: "
                "--template)");
  write_file(folder / "tokenizer_config.json", "{\"chat_template\": \"\"}");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)find_chat_template(folder.path()); }),
            folder /
                "tokenizer_config.json: the chat template is empty; name another file, with "
                "data.chat_template (of a command: --template)");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)chat_template_of("a\n{% if %}"); }),
            "chat template test.jinja, line 2: expected a value, found '%}'");
}

}  // namespace
}  // namespace sluice::testing
