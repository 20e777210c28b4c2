#include "runtime/data/chat/chat_template.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/data/chat/jinja/strings.hpp"
#include "runtime/data/chat/json_value.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/folder_tokens.hpp"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Span;
using jinja::Value;

constexpr std::int64_t kLargestTemplate = std::int64_t{64} << 20U;
// A character of the private use area: no template and no tokenizer gives it a meaning.
constexpr std::string_view kMarker = "\uE5C7";

jinja::Template compiled(const ChatTemplateSource& source) {
  try {
    return jinja::Template(source.text);
  } catch (const ConfigError& error) {
    throw ConfigError("chat template " + source.path + ", " + error.what());
  }
}

Value config_of(const std::string& path) {
  JsonValue parsed = parse_json_value(read_whole_file(path, kLargestTemplate));
  if (!parsed.error.empty()) throw IoError(path + ": " + parsed.error, path);
  if (parsed.value.as_dict() == nullptr) throw IoError(path + ": not a JSON object", path);
  return parsed.value;
}

// Undefined: the message has none.
Value reasoning_of(const Dict& message) {
  for (const char* const name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = message.find(name);
    if (reasoning != nullptr && !reasoning->is_none()) return *reasoning;
  }
  return {};
}

Dict special_tokens(const std::string& config) {
  Dict tokens;
  for (auto& [key, content] : named_tokens(config)) tokens.set(key, Value::text(content));
  return tokens;
}

// A template, or a list of {name, template}.
std::string template_of(const Dict& config, const std::string& path) {
  const Value* held = config.find("chat_template");
  if (held != nullptr && held->is_text()) return *held->as_text();
  const List* list = held != nullptr ? held->as_list() : nullptr;
  for (const Value& entry : list != nullptr ? list->items : std::vector<Value>{}) {
    const Dict* named = entry.as_dict();
    const Value* name = named != nullptr ? named->find("name") : nullptr;
    const Value* text = named != nullptr ? named->find("template") : nullptr;
    if (name != nullptr && text != nullptr && name->is_text() && text->is_text() &&
        *name->as_text() == "default") {
      return *text->as_text();
    }
  }
  throw ConfigError(path + " has no chat_template" + (list != nullptr ? " called 'default'" : "") +
                    "; name a file, as chat_template.jinja of the model, with data.chat_template "
                    "(of a command: --template)");
}

Value messages_to(const Value& messages, std::size_t count) {
  const std::vector<Value>& all = messages.as_list()->items;
  return Value::list({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)});
}

// Rising and disjoint: spans that touch are joined, empty ones dropped.
std::vector<Span> in_order(const std::vector<Span>& spans, std::size_t size) {
  std::vector<Span> result;
  for (Span span : spans) {
    span.end = std::min(span.end, size);
    if (!result.empty()) span.begin = std::max(span.begin, result.back().end);
    if (span.begin >= span.end) continue;
    if (!result.empty() && result.back().end == span.begin) {
      result.back().end = span.end;
    } else {
      result.push_back(span);
    }
  }
  return result;
}

// The gaps between rising and disjoint spans.
std::vector<Span> outside(const std::vector<Span>& spans, std::size_t size) {
  std::vector<Span> result;
  std::size_t begin = 0;
  for (const Span& span : spans) {
    result.push_back({begin, span.begin});
    begin = span.end;
  }
  result.push_back({begin, size});
  return in_order(result, size);
}

// A template without text would render every conversation as nothing.
ChatTemplateSource with_text(ChatTemplateSource source) {
  if (source.text.find_first_not_of(" \t\r\n") != std::string::npos) return source;
  throw ConfigError(source.path +
                    ": the chat template is empty; name another file, with data.chat_template (of "
                    "a command: --template)");
}

}  // namespace

ChatTemplateSource find_chat_template(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const fs::path home = folder ? fs::path(path) : fs::path(path).parent_path();
  const fs::path own = folder ? home / "chat_template.jinja" : fs::path(path);
  const fs::path config = own.extension() == ".json" ? own : home / "tokenizer_config.json";
  ChatTemplateSource source;
  Value settings;
  if (fs::exists(config, ignored)) settings = config_of(config.string());
  source.tokens = special_tokens(config.string());
  if (own != config && (!folder || fs::exists(own, ignored))) {
    source.path = own.string();
    source.text = read_whole_file(source.path, kLargestTemplate);
    return with_text(std::move(source));
  }
  if (settings.as_dict() == nullptr) {
    throw ConfigError(path +
                      " has neither chat_template.jinja nor tokenizer_config.json; name a file "
                      "with data.chat_template (of a command: --template)");
  }
  source.path = config.string();
  source.text = template_of(*settings.as_dict(), source.path);
  return with_text(std::move(source));
}

void add_tokens_of(const std::string& folder, ChatTemplateSource& source) {
  const std::filesystem::path config = std::filesystem::path(folder) / "tokenizer_config.json";
  const Dict tokens = special_tokens(config.string());
  for (const auto& [name, token] : tokens.items()) {
    if (source.tokens.find(name) == nullptr) source.tokens.set(name, token);
  }
}

Value template_messages(const Value& messages) {
  std::vector<Value> changed = messages.as_list()->items;
  for (Value& message : changed) {
    if (message.as_dict() == nullptr) continue;
    const Value reasoning = reasoning_of(*message.as_dict());
    Dict given;
    if (!reasoning.is_undefined()) given.set("thinking", reasoning);
    for (const auto& [key, value] : message.as_dict()->items()) {
      if (!value.is_none()) given.set(key, value);
    }
    if (!reasoning.is_undefined()) given.set("reasoning_content", reasoning);
    message = Value::dict(std::move(given));
  }
  return Value::list(std::move(changed));
}

ChatTemplate::ChatTemplate(ChatTemplateSource source, const std::tm& now)
    : source_(std::move(source)), template_(compiled(source_)), now_(now), turn_end_(turn_end()) {}

std::string ChatTemplate::turn_end() const {
  try {
    const std::string text = render(
        Value::list({chat_message("user", "q"), chat_message("assistant", std::string(kMarker))}),
        Value::none(), false);
    const std::size_t at = text.find(kMarker);
    if (at == text.npos) return "";
    return std::string(
        jinja::strip(std::string_view(text).substr(at + kMarker.size()), "", false, true));
  } catch (const jinja::RenderError&) {
    return "";  // such a conversation is refused
  }
}

jinja::Rendered ChatTemplate::rendered(const Value& messages, const Value& tools,
                                       bool add_generation_prompt) const {
  Dict variables;
  variables.set("messages", template_messages(messages));
  variables.set("tools", tools);
  variables.set("documents", Value::none());
  variables.set("add_generation_prompt", Value::boolean(add_generation_prompt));
  for (const auto& [name, token] : source_.tokens.items()) variables.set(name, token);
  return template_.render(variables, {.now = now_});
}

std::string ChatTemplate::render(const Value& messages, const Value& tools,
                                 bool add_generation_prompt) const {
  return rendered(messages, tools, add_generation_prompt).text;
}

RenderedChat ChatTemplate::learn(const Conversation& conversation, TrainOn train_on) const {
  jinja::Rendered result = rendered(conversation.messages, conversation.tools, false);
  RenderedChat chat{std::move(result.text), {}};
  const std::vector<Value>& messages = conversation.messages.as_list()->items;
  const bool weighted = std::any_of(messages.begin(), messages.end(), has_weight_0);
  if (train_on == TrainOn::kAll && !weighted) {
    chat.learned = in_order({{0, chat.text.size()}}, chat.text.size());
    return chat;
  }
  const bool marked = template_.has_generation();
  std::vector<Span> spans = std::move(result.generated);
  std::vector<std::size_t> answers;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_answer(messages[i])) {
      answers.push_back(i);
    } else if (train_on == TrainOn::kAll && has_weight_0(messages[i])) {
      throw jinja::RenderError("message " + std::to_string(i + 1) +
                               " has weight 0, which data.train_on: all knows of answers alone");
    }
  }
  if (marked && weighted && spans.size() != answers.size()) {
    throw jinja::RenderError("messages have weights, and the template marks " +
                             std::to_string(spans.size()) + " answers of " +
                             std::to_string(answers.size()));
  }
  if (train_on == TrainOn::kLast) {
    if (spans.size() > 1) spans.erase(spans.begin(), spans.end() - 1);
    if (answers.size() > 1) answers.erase(answers.begin(), answers.end() - 1);
  }
  if (!marked || weighted) {
    // Of TrainOn::kAll the answers that are not learned.
    const bool wanted = train_on != TrainOn::kAll;
    std::vector<Span> chosen;
    for (std::size_t i = answers.size(); i-- > 0;) {
      if (has_weight_0(messages[answers[i]]) == wanted) continue;
      chosen.insert(chosen.begin(),
                    marked ? spans[i] : answer(conversation, answers[i], chat.text));
    }
    spans = std::move(chosen);
  }
  chat.learned = in_order(spans, chat.text.size());
  if (train_on == TrainOn::kAll) chat.learned = outside(chat.learned, chat.text.size());
  if (!chat.learned.empty()) return chat;
  throw jinja::RenderError(weighted ? "every answer that is to be learned has weight 0"
                                    : "the template writes no answer");
}

Span ChatTemplate::answer(const Conversation& conversation, std::size_t index,
                          const std::string& text) const {
  std::string before, through;
  try {
    const Value& messages = conversation.messages;
    before = render(messages_to(messages, index), conversation.tools, true);
    through = index + 1 == messages.as_list()->items.size()
                  ? text
                  : render(messages_to(messages, index + 1), conversation.tools, false);
  } catch (const jinja::RenderError&) {
    return substituted(conversation, index, text);  // such a beginning is no conversation
  }
  if (!text.starts_with(before) || !text.starts_with(through) || through.size() < before.size()) {
    return substituted(conversation, index, text);
  }
  const std::string_view part = std::string_view(through).substr(before.size());
  return {before.size(), before.size() + jinja::strip(part, "", false, true).size()};
}

// Finds the content by a text of the conversation with a marker in its place.
Span ChatTemplate::substituted(const Conversation& conversation, std::size_t index,
                               const std::string& text) const {
  const auto fail = [&] {
    return jinja::RenderError("the answer in message " + std::to_string(index + 1) +
                              " cannot be told from the text around it; mark answers in the "
                              "template with {% generation %}");
  };
  std::vector<Value> messages = conversation.messages.as_list()->items;
  Dict marked = *messages[index].as_dict();
  if (const Value* calls = marked.find("tool_calls"); calls != nullptr && is_true(*calls)) {
    throw fail();
  }
  marked.set("content", Value::text(std::string(kMarker)));
  messages[index] = Value::dict(std::move(marked));
  const std::string other = render(Value::list(std::move(messages)), conversation.tools, false);
  const std::size_t at = other.find(kMarker);
  if (at == other.npos) throw fail();
  const std::string_view before = std::string_view(other).substr(0, at);
  const std::string_view after = std::string_view(other).substr(at + kMarker.size());
  if (!text.starts_with(before) || !text.ends_with(after) ||
      before.size() + after.size() > text.size()) {
    throw fail();
  }
  Span span{at, text.size() - after.size()};
  const Value* end = source_.tokens.find("eos_token");
  if (!turn_end_.empty() && after.starts_with(turn_end_)) {
    span.end += turn_end_.size();
  } else if (end != nullptr && after.starts_with(*end->as_text())) {
    span.end += end->as_text()->size();
  }
  return span;
}

}  // namespace sluice
