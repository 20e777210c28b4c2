#include "runtime/data/chat/conversation.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

struct Refusal {
  ConversationProblem problem;
  std::string reason;
};

[[noreturn]] void refuse(ConversationProblem problem, std::string reason) {
  throw Refusal{problem, std::move(reason)};
}

const Value* value_at(const Dict& object, std::string_view key) {
  const Value* value = object.find(key);
  return value != nullptr && value->is_none() ? nullptr : value;
}

std::string text_at(const Dict& object, const std::string& key, bool needed = true) {
  const Value* value = value_at(object, key);
  if (value != nullptr && value->is_text()) return *value->as_text();
  if (value == nullptr && !needed) return "";
  refuse(ConversationProblem::kShape,
         value == nullptr ? "no key '" + key + "'"
                          : "the value of '" + key + "' is " + value->kind() + ", not a string");
}

const List& list_at(const Dict& object, const std::string& key) {
  const Value* value = value_at(object, key);
  if (value != nullptr && value->as_list() != nullptr) return *value->as_list();
  refuse(ConversationProblem::kShape,
         value == nullptr ? "no key '" + key + "'"
                          : "the value of '" + key + "' is " + value->kind() + ", not a list");
}

// The template's name of a role; empty: nobody known.
std::string role_of(const std::string& name) {
  static const std::map<std::string_view, std::string_view> kRoles{{"user", "user"},
                                                                   {"human", "user"},
                                                                   {"assistant", "assistant"},
                                                                   {"gpt", "assistant"},
                                                                   {"chatgpt", "assistant"},
                                                                   {"model", "assistant"},
                                                                   {"bard", "assistant"},
                                                                   {"bing", "assistant"},
                                                                   {"system", "system"},
                                                                   {"developer", "developer"},
                                                                   {"tool", "tool"},
                                                                   {"observation", "tool"},
                                                                   {"function_response", "tool"}};
  const auto found = kRoles.find(name);
  return found == kRoles.end() ? "" : std::string(found->second);
}

bool holds_only_blanks(std::string_view text) { return jinja::strip(text, "", true, true).empty(); }

// A text, a list of parts that are texts, or nothing beside a tool's call.
bool has_content(const Dict& message, const std::string& place) {
  const Value* content = value_at(message, "content");
  if (content == nullptr) return false;
  if (const std::string* text = content->as_text()) return !holds_only_blanks(*text);
  const List* parts = content->as_list();
  if (parts == nullptr) {
    refuse(ConversationProblem::kShape,
           place + ": its content is " + content->kind() + ", not a string or a list of parts");
  }
  bool any = false;
  for (const Value& part : parts->items) {
    const Dict* object = part.as_dict();
    const Value* text = object != nullptr ? value_at(*object, "text") : nullptr;
    if (text == nullptr || !text->is_text()) {
      refuse(ConversationProblem::kShape, place + ": a part of its content is no text");
    }
    any = any || !holds_only_blanks(*text->as_text());
  }
  return any;
}

void check_weight(const Dict& message, const std::string& place) {
  const Value* weight = value_at(message, "weight");
  if (weight == nullptr) return;
  const double value = is_number(*weight) ? number_of(*weight) : -1;
  if (value != 0 && value != 1) {
    refuse(ConversationProblem::kShape, place + ": its weight is neither 0 nor 1");
  }
}

Value checked_message(const Dict& given, const char* role_key, std::size_t index) {
  const std::string place = "message " + std::to_string(index + 1);
  const std::string name = text_at(given, role_key);
  const std::string role = role_of(name);
  if (role.empty()) {
    refuse(ConversationProblem::kUnknownRole, place + ": its role '" + name.substr(0, 40) +
                                                  "' is unknown (known: system, developer, user, "
                                                  "assistant, tool)");
  }
  Dict message;
  message.set("role", Value::text(role));
  for (const auto& [key, value] : given.items()) {
    if (key == role_key) continue;
    message.set(key == "value" && std::string_view(role_key) == "from" ? "content" : key, value);
  }
  check_weight(message, place);
  const Value* calls = value_at(message, "tool_calls");
  const bool calls_tool = calls != nullptr && is_true(*calls);
  const bool content = has_content(message, place);
  if (role == "assistant" && !content && !calls_tool) {
    refuse(ConversationProblem::kEmptyAnswer, place + ": the answer is empty");
  }
  if (role != "assistant" && value_at(message, "content") == nullptr) {
    refuse(ConversationProblem::kShape, place + ": no content");
  }
  return Value::dict(std::move(message));
}

bool has_role(const Value& message, std::string_view role) {
  const Value* held = message.as_dict() != nullptr ? message.as_dict()->find("role") : nullptr;
  return held != nullptr && held->is_text() && *held->as_text() == role;
}

// `system`: of the object; a first message of the system takes its place.
Value checked_messages(const List& given, const char* role_key, const std::string& system) {
  std::vector<Value> messages;
  bool answered = false, learned = false;
  for (std::size_t i = 0; i < given.items.size(); ++i) {
    const Dict* message = given.items[i].as_dict();
    if (message == nullptr) {
      refuse(ConversationProblem::kShape, "message " + std::to_string(i + 1) + " is " +
                                              given.items[i].kind() + ", not an object");
    }
    messages.push_back(checked_message(*message, role_key, i));
    answered = answered || is_answer(messages.back());
    learned = learned || (is_answer(messages.back()) && !has_weight_0(messages.back()));
  }
  if (!answered) refuse(ConversationProblem::kNoAnswer, "no message of the assistant");
  if (!learned) refuse(ConversationProblem::kNoAnswer, "every answer has weight 0");
  if (!holds_only_blanks(system) && !has_role(messages[0], "system")) {
    messages.insert(messages.begin(), chat_message("system", system));
  }
  return Value::list(std::move(messages));
}

// Earlier turns: a list of pairs, question and answer.
void add_history(const Dict& object, std::vector<Value>& messages) {
  if (value_at(object, "history") == nullptr) return;
  for (const Value& turn : list_at(object, "history").items) {
    const List* pair = turn.as_list();
    if (pair == nullptr || pair->items.size() != 2 || !pair->items[0].is_text() ||
        !pair->items[1].is_text()) {
      refuse(ConversationProblem::kShape,
             "a turn of 'history' is no pair of strings, question and answer");
    }
    const std::string& answer = *pair->items[1].as_text();
    if (holds_only_blanks(answer)) {
      refuse(ConversationProblem::kEmptyAnswer, "an answer of 'history' is empty");
    }
    messages.push_back(chat_message("user", *pair->items[0].as_text()));
    messages.push_back(chat_message("assistant", answer));
  }
}

Value alpaca_messages(const Dict& object) {
  std::vector<Value> messages;
  const std::string system = text_at(object, "system", false);
  if (!system.empty()) messages.push_back(chat_message("system", system));
  add_history(object, messages);
  std::string question = text_at(object, "instruction");
  const std::string input = text_at(object, "input", false);
  if (!input.empty()) question += "\n\n" + input;
  std::string answer = text_at(object, "output");
  if (holds_only_blanks(answer)) refuse(ConversationProblem::kEmptyAnswer, "the output is empty");
  messages.push_back(chat_message("user", std::move(question)));
  messages.push_back(chat_message("assistant", std::move(answer)));
  return Value::list(std::move(messages));
}

Conversation conversation_of(const Dict& object, ConversationFormat format) {
  Conversation result;
  if (const Value* tools = value_at(object, "tools")) {
    if (tools->as_list() == nullptr) {
      refuse(ConversationProblem::kShape,
             "the value of 'tools' is " + tools->kind() + ", not a list");
    }
    if (is_true(*tools)) result.tools = *tools;
  }
  if (format == ConversationFormat::kAlpaca) {
    result.messages = alpaca_messages(object);
  } else if (format == ConversationFormat::kOpenAi) {
    result.messages =
        checked_messages(list_at(object, "messages"), "role", text_at(object, "system", false));
  } else if (format == ConversationFormat::kShareGpt) {
    const List& turns = list_at(object, "conversations");
    const Dict* first = turns.items.empty() ? nullptr : turns.items[0].as_dict();
    const bool roles = first != nullptr && first->find("role") != nullptr;
    result.messages =
        checked_messages(turns, roles ? "role" : "from", text_at(object, "system", false));
  } else {
    result.prompt = text_at(object, "prompt");
    result.completion = text_at(object, "completion");
    if (holds_only_blanks(result.completion)) {
      refuse(ConversationProblem::kEmptyAnswer, "the completion is empty");
    }
  }
  return result;
}

constexpr std::array<std::string_view, kConversationProblems> kProblems{"broken",
                                                                        "of another shape",
                                                                        "with an unknown role",
                                                                        "with an empty answer",
                                                                        "without an answer",
                                                                        "refused by the template",
                                                                        "too long"};

}  // namespace

std::string_view name_of(ConversationProblem problem) {
  return kProblems[static_cast<std::size_t>(problem)];
}

std::int64_t ConversationCounts::all_left_out() const {
  return std::accumulate(left_out.begin(), left_out.end(), std::int64_t{0});
}

std::string ConversationCounts::text() const {
  std::string out = std::to_string(read) + (read == 1 ? " conversation" : " conversations");
  const char* before = "; left out: ";
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    if (left_out[i] == 0) continue;
    out +=
        std::exchange(before, ", ") + std::to_string(left_out[i]) + " " + std::string(kProblems[i]);
  }
  return out;
}

Value chat_message(const std::string& role, std::string content) {
  Dict message;
  message.set("role", Value::text(role));
  message.set("content", Value::text(std::move(content)));
  return Value::dict(std::move(message));
}

bool is_answer(const Value& message) { return has_role(message, "assistant"); }

bool has_weight_0(const Value& message) {
  const Value* weight =
      message.as_dict() != nullptr ? value_at(*message.as_dict(), "weight") : nullptr;
  return weight != nullptr && is_number(*weight) && number_of(*weight) == 0;
}

ConversationFormat format_of(const Value& object) {
  const Dict* dict = object.as_dict();
  if (dict == nullptr) return ConversationFormat::kAuto;
  if (dict->find("messages") != nullptr) return ConversationFormat::kOpenAi;
  if (dict->find("conversations") != nullptr) return ConversationFormat::kShareGpt;
  if (dict->find("instruction") != nullptr) return ConversationFormat::kAlpaca;
  if (dict->find("completion") != nullptr) return ConversationFormat::kCompletion;
  return ConversationFormat::kAuto;
}

ParsedConversation parse_conversation(const Value& object, ConversationFormat format) {
  check(format != ConversationFormat::kAuto, "parse_conversation without a format");
  ParsedConversation result;
  if (object.as_dict() == nullptr) {
    result.left_out = {ConversationProblem::kBroken, 0, object.kind() + ", not a JSON object"};
    return result;
  }
  try {
    result.conversation = conversation_of(*object.as_dict(), format);
  } catch (const Refusal& refusal) {
    result.left_out = {refusal.problem, 0, refusal.reason};
  }
  return result;
}

}  // namespace sluice
