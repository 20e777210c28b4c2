#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "runtime/data/chat/chat_template.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_chat_template(std::span<const std::byte> bytes) {
  static const auto tokenizer = make_tokenizer("bytes");
  jinja::Dict question, answer;
  question.set("role", jinja::Value::text("user"));
  question.set("content", jinja::Value::text("What?\n"));
  answer.set("role", jinja::Value::text("assistant"));
  answer.set("content", jinja::Value::text("This."));
  Conversation conversation;
  conversation.messages = jinja::Value::list(
      {jinja::Value::dict(std::move(question)), jinja::Value::dict(std::move(answer))});
  try {
    const ChatTemplate chat(
        {"fuzz", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {}}, std::tm{});
    const LearnedTokens tokens =
        encode_chat(*tokenizer, chat.learn(conversation, TrainOn::kAssistant));
    if (tokens.ids.size() != tokens.learned.size()) std::abort();
  } catch (const Error&) {
    return;
  }
}

void fuzz_conversations(std::span<const std::byte> bytes) {
  static const int file = ::memfd_create("conversations.jsonl", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  const TextFile text{.path = "/proc/self/fd/" + std::to_string(file),
                      .size_bytes = size,
                      .named = true,
                      .format = TextFormat::kJsonLines};
  for (int format = 0; format <= static_cast<int>(ConversationFormat::kCompletion); ++format) {
    try {
      std::int64_t given = 0, left_out = 0;
      const ConversationCounts counts =
          read_conversations(text, static_cast<ConversationFormat>(format),
                             {[&](Conversation&& /*talk*/) { ++given; },
                              [&](const LeftOut& /*reason*/) { ++left_out; }});
      if (counts.read != given || counts.all_left_out() != left_out) std::abort();
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace sluice::testing
