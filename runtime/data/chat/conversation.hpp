// Conversations for fine-tuning, from JSON lines or a JSON list in the field's formats. Nothing is
// left out silently: each object is a conversation or a problem with file, line and reason.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/value.hpp"
#include "runtime/data/data_options.hpp"
#include "runtime/data/text_files.hpp"

namespace sluice {

struct Conversation {
  jinja::Value messages;                      // [{role:, content:, ...}]; of kCompletion undefined
  jinja::Value tools = jinja::Value::none();  // as the template's `tools`
  std::string prompt, completion;             // of kCompletion: text without a template
  std::int64_t line = 0;                      // of the object's first byte
  std::int64_t item = 0;                      // the object's number in a list, from 1; 0: no list
  [[nodiscard]] bool is_completion() const { return messages.is_undefined(); }
};

enum class ConversationProblem : std::uint8_t {
  kBroken,       // not valid JSON, or not an object
  kShape,        // keys or values are missing or of another type
  kUnknownRole,  // a message of nobody known
  kEmptyAnswer,  // an answer without text and without a tool's call
  kNoAnswer,     // no message of the assistant, or none to learn
  kTemplate,     // the chat template refuses the conversation
  kTooLong,      // more tokens than model.seq
};
inline constexpr std::size_t kConversationProblems = 7;
[[nodiscard]] std::string_view name_of(ConversationProblem problem);

struct LeftOut {
  ConversationProblem problem = ConversationProblem::kBroken;
  std::int64_t line = 0;
  std::string reason;
  std::int64_t item = 0;  // as in Conversation
};

struct ConversationCounts {
  std::int64_t read = 0;  // conversations that were given
  std::array<std::int64_t, kConversationProblems> left_out{};
  void add(ConversationProblem problem) { ++left_out[static_cast<std::size_t>(problem)]; }
  [[nodiscard]] std::int64_t all_left_out() const;
  // "12 conversations; left out: 2 with an unknown role, 1 that is broken".
  [[nodiscard]] std::string text() const;
};

// "FILE, line 7", or "FILE, line 1, item 7" of a list, which may be one line.
[[nodiscard]] std::string place_in_list(const TextFile& file, std::int64_t line, std::int64_t item);

// {role: ROLE, content: CONTENT}
[[nodiscard]] jinja::Value chat_message(const std::string& role, std::string content);

// Of a message of Conversation::messages: the assistant's; with `weight: 0`, so that the loss
// leaves the message out.
[[nodiscard]] bool is_answer(const jinja::Value& message);
[[nodiscard]] bool has_weight_0(const jinja::Value& message);

// One object of a file as a conversation. `format` is not kAuto.
struct ParsedConversation {
  Conversation conversation;
  LeftOut left_out;  // if `reason` is not empty
};
[[nodiscard]] ParsedConversation parse_conversation(const jinja::Value& object,
                                                    ConversationFormat format);
// The format that the keys of an object tell; kAuto: none.
[[nodiscard]] ConversationFormat format_of(const jinja::Value& object);

struct ConversationSink {
  std::function<void(Conversation&&)> conversation;
  std::function<void(const LeftOut&)> left_out;
};

// Calls the sink for the objects of a file in order. The file is JSON lines or one JSON list of
// objects, which its first byte tells; it may be packed by gzip. Memory: the longest object, at
// most 64 MiB. Throws ConfigError if the format is kAuto and the first object tells none, IoError
// if the file cannot be read, or is of another kind by its first bytes and was named.
ConversationCounts read_conversations(const TextFile& file, ConversationFormat format,
                                      const ConversationSink& sink);

}  // namespace sluice
