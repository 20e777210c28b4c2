// The chat template of a model: conversations to text, and which parts of the text are learned.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/data/chat/conversation.hpp"
#include "runtime/data/chat/jinja/template.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct ChatTemplateSource {
  std::string path;    // for messages
  std::string text;    // Jinja
  jinja::Dict tokens;  // bos_token, eos_token ... of the tokenizer: variables of the template
};

// `path`: a template, a tokenizer_config.json, or a folder with chat_template.jinja or
// tokenizer_config.json. The first file of a folder wins. Special tokens come from the
// tokenizer_config.json and the special_tokens_map.json beside (named_tokens). Of several templates
// the one called "default". Throws ConfigError if there is no template, IoError if a file cannot be
// read.
[[nodiscard]] ChatTemplateSource find_chat_template(const std::string& path);

// Sets the tokens that `source` lacks from the same two files in `folder`. Throws IoError if one is
// damaged.
void add_tokens_of(const std::string& folder, ChatTemplateSource& source);

struct RenderedChat {
  std::string text;
  std::vector<jinja::Span> learned;  // rising, disjoint, none empty
};

// A list of messages as transformers gives it to a template: keys whose value is null are gone, and
// a message's reasoning has the names reasoning_content and thinking.
[[nodiscard]] jinja::Value template_messages(const jinja::Value& messages);

// Immutable; thread-safe.
class ChatTemplate {
 public:
  // `now`: the time of strftime_now, fixed so that texts do not depend on the day. Throws
  // ConfigError with file and line if the template does not parse.
  ChatTemplate(ChatTemplateSource source, const std::tm& now);

  // Throws jinja::RenderError if the template refuses the conversation or fails.
  [[nodiscard]] std::string render(const jinja::Value& messages, const jinja::Value& tools,
                                   bool add_generation_prompt) const;
  // Answers are the text of {% generation %} blocks. Without such blocks an answer is what follows
  // the prompt for it (add_generation_prompt) up to the end of its message, end-of-turn token
  // included, without white space at its end. If the text before an answer depends on what follows,
  // an answer is its content, and the end of the turn or the end-of-sequence token if that follows
  // at once. An answer of weight 0 is not learned, whatever `train_on`.
  // Throws jinja::RenderError also if an answer cannot be told from the text around it.
  [[nodiscard]] RenderedChat learn(const Conversation& conversation, TrainOn train_on) const;

 private:
  [[nodiscard]] jinja::Rendered rendered(const jinja::Value& messages, const jinja::Value& tools,
                                         bool add_generation_prompt) const;
  [[nodiscard]] jinja::Span answer(const Conversation& conversation, std::size_t index,
                                   const std::string& text) const;
  [[nodiscard]] jinja::Span substituted(const Conversation& conversation, std::size_t index,
                                        const std::string& text) const;
  [[nodiscard]] std::string turn_end() const;

  ChatTemplateSource source_;
  jinja::Template template_;
  std::tm now_;
  std::string turn_end_;  // behind the content of a last answer, as "<|im_end|>"
};

// The ids of a conversation; learned[i] is 1 if the loss counts the prediction of ids[i].
struct LearnedTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> learned;
};

// Encodes the text as a whole. A token is learned if it holds a byte of a learned part. A tokenizer
// that rewrites the text (NFKC, lower case) encodes each part by itself. The names of end-of-text,
// Tokenizer::leading() and Tokenizer::chat_tokens() in the text are these tokens, as in
// transformers, also if the tokenizer takes names for ordinary text.
[[nodiscard]] LearnedTokens encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);
// A prompt and its completion, without a template: the completion and end-of-text are learned, or
// all with TrainOn::kAll.
[[nodiscard]] LearnedTokens encode_completion(const Tokenizer& tokenizer,
                                              const Conversation& conversation, TrainOn train_on);

}  // namespace sluice
