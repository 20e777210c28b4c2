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

class ChatEncoder {
 public:
  // `chat_template` and `tokenizer` are data.chat_template and data.tokenizer. Without a
  // chat_template the tokenizer's folder may hold one. Without either, completions alone can be
  // encoded. A template takes the special tokens that its folder lacks from the
  // tokenizer_config.json of the tokenizer's folder, else eos_token and bos_token from the
  // tokenizer. Throws as find_chat_template.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_spec,
              const std::string& chat_template, TrainOn train_on);

  // Throws jinja::RenderError if the template refuses the conversation, TokenizeError if the
  // tokenizer refuses the text, ConfigError without a template.
  [[nodiscard]] LearnedTokens encode(const Conversation& conversation) const;
  // The input of a model that is to answer.
  [[nodiscard]] std::vector<std::int32_t> prompt(const jinja::Value& messages) const;
  // What the template writes behind an answer, as "<|im_end|>"; empty: nothing, or unknown.
  [[nodiscard]] std::string end_of_turn() const;

  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  // Encoders with equal fingerprints encode alike.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

 private:
  [[nodiscard]] const ChatTemplate& chat_template() const;

  const Tokenizer& tokenizer_;
  const TrainOn train_on_;
  std::optional<ChatTemplate> template_;
  std::string fingerprint_;
};

}  // namespace sluice
