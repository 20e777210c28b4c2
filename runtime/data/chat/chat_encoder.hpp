// Conversations to ids with the mask of what is learned: a tokenizer and a chat template. The same
// object encodes the data of a run and the prompts of `sluice generate --chat`. Immutable after
// construction; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/chat/chat_template.hpp"

namespace sluice {

// The template of a run: data.chat_template, or without that key the template in the folder of the
// tokenizer; nullopt: none. Its tokens are those of its folder and of add_known_tokens(). Throws as
// find_chat_template.
[[nodiscard]] std::optional<ChatTemplateSource> chat_template_of(const Tokenizer& tokenizer,
                                                                 const std::string& tokenizer_spec,
                                                                 const std::string& chat_template);
// Sets the tokens that `source` lacks: those of add_tokens_of(folder), unless
// `folder` is empty, else eos_token and bos_token from the tokenizer.
void add_known_tokens(const Tokenizer& tokenizer, const std::string& folder,
                      ChatTemplateSource& source);

class ChatEncoder {
 public:
  // `chat_template` and `tokenizer` are data.chat_template and data.tokenizer. Without a template
  // completions alone can be encoded. Throws as chat_template_of.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_spec,
              const std::string& chat_template, TrainOn train_on);

  // Throws jinja::RenderError if the template refuses the conversation, TokenizeError if the
  // tokenizer refuses the text, ConfigError without a template.
  [[nodiscard]] LearnedTokens encode(const Conversation& conversation) const;
  // The input of a model that is to answer.
  [[nodiscard]] std::vector<std::int32_t> prompt(const jinja::Value& messages) const;
  [[nodiscard]] bool has_template() const { return template_.has_value(); }
  // What the template writes behind an answer, as <|im_end|>, if that is one token. Throws
  // ConfigError without a template.
  [[nodiscard]] std::optional<std::int32_t> end_of_turn() const;
  // False if the template writes nothing but white space behind an answer: a model that learns such
  // conversations does not learn to end its answers. Throws ConfigError without a template.
  [[nodiscard]] bool ends_answers() const;

  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  // Encoders with equal fingerprints encode alike.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

 private:
  [[nodiscard]] const ChatTemplate& chat_template() const;
  // The learned text behind an answer, without white space around it; nullopt: the template refuses
  // a question with an answer, or changes the answer.
  [[nodiscard]] std::optional<std::string> learned_end() const;

  const Tokenizer& tokenizer_;
  const TrainOn train_on_;
  std::optional<ChatTemplate> template_;
  std::string fingerprint_;
};

}  // namespace sluice
