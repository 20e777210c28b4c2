#include <algorithm>

#include "runtime/data/byte_source.hpp"
#include "runtime/data/chat/conversation.hpp"
#include "runtime/data/chat/json_value.hpp"
#include "runtime/data/document_reader.hpp"

namespace sluice {
namespace {

constexpr std::size_t kChunkBytes = 256U << 10U;
constexpr std::size_t kLongestObject = 64U << 20U;
constexpr std::string_view kBlanks = " \t\r\n";

// Cuts a file into its objects: the lines, or the elements of one list. A cut needs brackets and
// strings only, so an element that is no valid JSON does not end the reading.
class ObjectCutter {
 public:
  explicit ObjectCutter(ByteSource& source) : source_(source), chunk_(kChunkBytes, '\0') {
    (void)fill();
    kind_ = kind_of_magic(std::string_view(chunk_).substr(0, filled_));
    if (chunk_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    while (at_ < filled_ && kBlanks.find(chunk_[at_]) != kBlanks.npos) (void)take();
    if (at_ < filled_ && chunk_[at_] == '[') {
      list_ = true;
      (void)take();
    }
  }

  // The next object; `too_long` if only its first bytes were kept. False: no more.
  bool next(std::string& object, bool& too_long) {
    object.clear();
    too_long = false;
    return list_ ? next_element(object, too_long) : next_line(object, too_long);
  }
  [[nodiscard]] std::int64_t line() const { return first_line_; }  // of the object's first byte
  [[nodiscard]] std::int64_t item() const { return item_; }        // as Conversation::item
  // The kind of a file that is no text, by its first bytes; empty: may be text.
  [[nodiscard]] const std::string& kind() const { return kind_; }
  // The list has no end, or something follows it.
  [[nodiscard]] const std::string& damage() const { return damage_; }

 private:
  bool fill() {
    filled_ = source_.read(chunk_);
    at_ = 0;
    return filled_ > 0;
  }
  bool has_byte() { return at_ < filled_ || fill(); }
  char take() {
    line_ += chunk_[at_] == '\n' ? 1 : 0;
    return chunk_[at_++];
  }
  static void keep(char c, std::string& object, bool& too_long) {
    if (object.size() < kLongestObject) {
      object += c;
    } else {
      too_long = true;
    }
  }

  bool next_line(std::string& object, bool& too_long) {
    while (has_byte()) {
      if (object.empty()) first_line_ = line_;
      const char c = take();
      if (c == '\n') {
        if (object.find_first_not_of(kBlanks) != object.npos) return true;
        object.clear();
      } else {
        keep(c, object, too_long);
      }
    }
    return object.find_first_not_of(kBlanks) != object.npos;
  }

  bool next_element(std::string& object, bool& too_long) {
    int depth = 0;
    bool quoted = false, escaped = false;
    while (!ended_ && has_byte()) {
      if (object.empty()) first_line_ = line_;
      const char c = take();
      const bool space = kBlanks.find(c) != kBlanks.npos;
      if (object.empty() && (space || c == ',')) continue;
      if (object.empty() && c != ']') ++item_;
      if (depth == 0 && !quoted && (c == ',' || c == ']')) {
        ended_ = c == ']';
        if (!object.empty()) return true;
        break;
      }
      keep(c, object, too_long);
      if (quoted) {
        quoted = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        quoted = true;
      } else {
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= (c == '}' || c == ']') && depth > 0 ? 1 : 0;
      }
    }
    if (!ended_) damage_ = "the list has no end ']'";
    while (has_byte() && damage_.empty()) {
      if (kBlanks.find(take()) == kBlanks.npos) damage_ = "something follows the list's end";
    }
    return !object.empty();
  }

  ByteSource& source_;
  std::string chunk_;
  std::size_t at_ = 0, filled_ = 0;
  std::int64_t line_ = 1, first_line_ = 1, item_ = 0;
  bool list_ = false, ended_ = false;
  std::string kind_, damage_;
};

ConversationFormat detected(const TextFile& file, const ObjectCutter& cutter,
                            const jinja::Value& object) {
  const ConversationFormat format = format_of(object);
  if (format != ConversationFormat::kAuto) return format;
  throw ConfigError(place_in_list(file, cutter.line(), cutter.item()) +
                    ": no format of conversations has these keys; expected messages, "
                    "conversations, instruction and output, or prompt and completion");
}

}  // namespace

std::string place_in_list(const TextFile& file, std::int64_t line, std::int64_t item) {
  return place_of(file, line, 0) + (item > 0 ? ", item " + std::to_string(item) : "");
}

ConversationCounts read_conversations(const TextFile& file, ConversationFormat format,
                                      const ConversationSink& sink) {
  const auto source = open_bytes(file);
  ObjectCutter cutter(*source);
  ConversationCounts counts;
  const auto leave_out = [&](ConversationProblem problem, std::string reason) {
    counts.add(problem);
    sink.left_out({problem, cutter.line(), std::move(reason), cutter.item()});
  };
  if (!cutter.kind().empty()) {
    if (file.named) {
      throw IoError(file.key + ": " + file.path + " is " + cutter.kind(), file.path);
    }
    leave_out(ConversationProblem::kBroken, "the file is " + cutter.kind());
    return counts;
  }
  std::string text;
  for (bool too_long = false; cutter.next(text, too_long);) {
    if (too_long) {
      leave_out(ConversationProblem::kBroken,
                "longer than 64 MiB, the most that an object may have");
      continue;
    }
    const JsonValue parsed = parse_json_value(text);
    if (!parsed.error.empty()) {
      leave_out(ConversationProblem::kBroken, parsed.error);
      continue;
    }
    if (format == ConversationFormat::kAuto && parsed.value.as_dict() != nullptr) {
      format = detected(file, cutter, parsed.value);
    }
    ParsedConversation result =
        format == ConversationFormat::kAuto
            ? ParsedConversation{{},
                                 {ConversationProblem::kBroken, 0,
                                  parsed.value.kind() + ", not a JSON object"}}
            : parse_conversation(parsed.value, format);
    if (!result.left_out.reason.empty()) {
      leave_out(result.left_out.problem, std::move(result.left_out.reason));
      continue;
    }
    result.conversation.line = cutter.line();
    result.conversation.item = cutter.item();
    ++counts.read;
    sink.conversation(std::move(result.conversation));
  }
  if (!cutter.damage().empty()) leave_out(ConversationProblem::kBroken, cutter.damage());
  return counts;
}

}  // namespace sluice
