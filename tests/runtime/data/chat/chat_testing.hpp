// Cases of chat_oracle.py: what transformers renders, encodes and masks.
#pragma once

#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/data/chat/chat_template.hpp"
#include "runtime/data/chat/jinja/strings.hpp"
#include "runtime/data/chat/json_value.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {

inline jinja::Value value_from(const std::string& json) {
  JsonValue parsed = parse_json_value(json);
  if (!parsed.error.empty()) throw Error("a test's JSON: " + parsed.error);
  return parsed.value;
}

// Noon of 4 July 2026, as in the oracle.
inline std::tm fixed_time() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 12;
  return now;
}

inline std::string golden_chat(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/golden/chat/" + name;
}

struct ChatCase {
  jinja::Value value;
  [[nodiscard]] const jinja::Value* at(std::string_view key) const {
    return value.as_dict()->find(key);
  }
  [[nodiscard]] std::string text(std::string_view key) const { return *at(key)->as_text(); }
};

inline std::vector<ChatCase> chat_cases(const std::string& path) {
  std::vector<ChatCase> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) cases.push_back({value_from(line)});
  return cases;
}

inline std::string template_text(const std::string& name) {
  return read_file(name.starts_with('/') ? name : golden_chat(name));
}

inline ChatTemplate chat_template_of(const std::string& text, const std::string& eos = "</s>") {
  ChatTemplateSource source{"test.jinja", text, {}};
  source.tokens.set("bos_token", jinja::Value::text("<s>"));
  source.tokens.set("eos_token", jinja::Value::text(eos));
  return {std::move(source), fixed_time()};
}

inline Conversation conversation_from(const std::string& messages) {
  Conversation conversation;
  conversation.messages = value_from(messages);
  return conversation;
}

// The learned parts of a rendered conversation.
inline std::vector<std::string> learned_parts(const RenderedChat& chat) {
  std::vector<std::string> parts;
  for (const jinja::Span& span : chat.learned) {
    parts.push_back(chat.text.substr(span.begin, span.end - span.begin));
  }
  return parts;
}

}  // namespace sluice::testing
