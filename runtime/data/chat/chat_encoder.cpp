#include "runtime/data/chat/chat_encoder.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/data/chat/jinja/strings.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/tokenizer/added_tokens.hpp"

namespace sluice {
namespace {

using jinja::Value;

// The date of strftime_now: texts do not depend on the day. Llama 3.1's template has this date.
std::tm template_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 12;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

// Empty: the tokenizer has none.
std::string folder_of(const std::string& tokenizer) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (tokenizer == "bytes") return "";
  return fs::is_directory(tokenizer, ignored) ? tokenizer
                                              : fs::path(tokenizer).parent_path().string();
}

// The template in a tokenizer's folder, if it has one.
std::optional<ChatTemplateSource> template_beside(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    return find_chat_template(folder);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

void add_token(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, const char* name,
               ChatTemplateSource& source) {
  if (source.tokens.find(name) == nullptr) {
    source.tokens.set(name, Value::text(tokenizer.decode(ids)));
  }
}

}  // namespace

std::optional<ChatTemplateSource> chat_template_of(const Tokenizer& tokenizer,
                                                   const std::string& tokenizer_spec,
                                                   const std::string& chat_template) {
  const std::string folder = folder_of(tokenizer_spec);
  std::optional<ChatTemplateSource> source =
      chat_template.empty() ? template_beside(folder) : find_chat_template(chat_template);
  if (source) add_known_tokens(tokenizer, folder, *source);
  return source;
}

void add_known_tokens(const Tokenizer& tokenizer, const std::string& folder,
                      ChatTemplateSource& source) {
  if (!folder.empty()) add_tokens_of(folder, source);
  const std::int32_t end = tokenizer.end_of_text();
  add_token(tokenizer, {&end, 1}, "eos_token", source);
  add_token(tokenizer, tokenizer.leading(), "bos_token", source);
}

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_spec,
                         const std::string& chat_template, TrainOn train_on)
    : tokenizer_(tokenizer), train_on_(train_on) {
  Hasher hasher;
  hasher.add("chat encoder v3");
  hasher.add(tokenizer.document_fingerprint());
  for (const AddedToken& token : tokenizer.chat_tokens()) {
    hasher.add(token.content);
    hasher.add(std::int64_t{token.id});
    hasher.add(std::int64_t{token.lstrip} | std::int64_t{token.rstrip} << 1U |
               std::int64_t{token.single_word} << 2U);
  }
  hasher.add(static_cast<std::int64_t>(train_on));
  if (auto source = chat_template_of(tokenizer, tokenizer_spec, chat_template)) {
    hasher.add(source->text);
    for (const auto& [name, token] : source->tokens.items()) {
      hasher.add(name);
      hasher.add(*token.as_text());
    }
    template_.emplace(std::move(*source), template_time());
  }
  fingerprint_ = hasher.digest_hex();
}

const ChatTemplate& ChatEncoder::chat_template() const {
  if (template_) return *template_;
  throw ConfigError(
      "conversations need a chat template, and the folder of data.tokenizer has none; give "
      "data.chat_template, a chat_template.jinja or tokenizer_config.json");
}

LearnedTokens ChatEncoder::encode(const Conversation& conversation) const {
  if (conversation.is_completion()) return encode_completion(tokenizer_, conversation, train_on_);
  return encode_chat(tokenizer_, chat_template().learn(conversation, train_on_));
}

std::vector<std::int32_t> ChatEncoder::prompt(const Value& messages) const {
  return encode_chat(tokenizer_, {chat_template().render(messages, Value::none(), true), {}}).ids;
}

std::optional<std::string> ChatEncoder::learned_end() const {
  const std::string answer = "answer";
  Conversation conversation;
  conversation.messages =
      Value::list({chat_message("user", "question"), chat_message("assistant", answer)});
  try {
    const RenderedChat chat = chat_template().learn(conversation, TrainOn::kLast);
    const jinja::Span last = chat.learned.back();
    const std::string learned = chat.text.substr(last.begin, last.end - last.begin);
    const std::size_t at = learned.rfind(answer);
    if (at == learned.npos) return std::nullopt;
    const std::string_view behind = std::string_view(learned).substr(at + answer.size());
    return std::string(jinja::strip(behind, "", true, true));
  } catch (const jinja::RenderError&) {
    return std::nullopt;
  }
}

std::optional<std::int32_t> ChatEncoder::end_of_turn() const {
  const std::optional<std::string> end = learned_end();
  if (!end) return std::nullopt;
  const std::vector<std::int32_t> ids = encode_chat(tokenizer_, {*end, {}}).ids;
  return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
}

bool ChatEncoder::ends_answers() const { return learned_end() != ""; }

}  // namespace sluice
