// Values as Python writes them: str, repr and json.dumps.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/data/chat/jinja/strings.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice::jinja {
namespace {

// repr(float): the shortest digits that read back equal; an exponent from 1e16 on and below 1e-4.
std::string real_text(double value, bool json) {
  if (std::isnan(value)) return json ? "NaN" : "nan";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + (json ? "Infinity" : "inf");
  const double size = std::fabs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(buffer.data(), end.ptr);
  if (!exponent && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string hex(unsigned value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(static_cast<std::size_t>(digits), '0');
  for (auto place = out.rbegin(); place != out.rend(); ++place, value >>= 4U) {
    *place = kDigits[value & 15U];
  }
  return out;
}

std::string quoted_source(const std::string& text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n' || c == '\t' || c == '\r') {
      out += {'\\', c == '\n' ? 'n' : c == '\t' ? 't' : 'r'};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\x" + hex(byte, 2);
    } else {
      out += c;
    }
  }
  return out + quote;
}

void append_escaped(std::string_view character, bool ascii, std::string& out) {
  static constexpr std::string_view kNamed = "\"\"\\\\\nn\rr\tt\bb\ff";
  const char c = character[0];
  for (std::size_t i = 0; character.size() == 1 && i < kNamed.size(); i += 2) {
    if (kNamed[i] != c) continue;
    out += {'\\', kNamed[i + 1]};
    return;
  }
  if (character.size() == 1 && static_cast<unsigned char>(c) < 0x20) {
    out += "\\u" + hex(static_cast<unsigned char>(c), 4);
  } else if (ascii && character.size() > 1) {
    std::size_t length = 0;
    const char32_t code = first_code_point(character, length);
    if (code >= 0x10000) out += "\\u" + hex(0xD800 + ((code - 0x10000) >> 10U), 4);
    out += "\\u" + hex(code >= 0x10000 ? 0xDC00 + (code & 0x3FFU) : code, 4);
  } else {
    out += character;
  }
}

std::string quoted_json(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (const std::string_view character : characters_of(text)) {
    append_escaped(character, ascii, out);
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  std::string out;

  void write(const Value& value, std::int64_t level) {
    if (const List* list = value.as_list()) {
      open('[', ']', list->items.size(), level,
           [&](std::size_t i) { write(list->items[i], level + 1); });
    } else if (const Dict* dict = value.as_dict()) {
      std::vector<const Dict::Item*> items;
      for (const Dict::Item& item : dict->items()) items.push_back(&item);
      if (style_.sort_keys) {
        std::sort(items.begin(), items.end(),
                  [](const auto* a, const auto* b) { return a->first < b->first; });
      }
      open('{', '}', items.size(), level, [&](std::size_t i) {
        out += quoted_json(items[i]->first, style_.ascii) + style_.key_separator;
        write(items[i]->second, level + 1);
      });
    } else {
      out += scalar(value);
    }
  }

 private:
  [[nodiscard]] std::string scalar(const Value& value) const {
    if (value.is_none()) return "null";
    if (const bool* truth = value.as_bool()) return *truth ? "true" : "false";
    if (const std::int64_t* integer = value.as_integer()) return std::to_string(*integer);
    if (const double* real = value.as_real()) return real_text(*real, true);
    if (const std::string* text = value.as_text()) return quoted_json(*text, style_.ascii);
    throw RenderError("tojson cannot write " + value.kind());
  }
  void new_line(std::int64_t level) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(style_.indent * level), ' ');
  }
  template <typename Item>
  void open(char left, char right, std::size_t count, std::int64_t level, Item&& item) {
    out += left;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      item(i);
    }
    if (count > 0) new_line(level);
    out += right;
  }

  const JsonStyle& style_;
};

}  // namespace

std::string to_source(const Value& value) {
  if (const std::string* text = value.as_text()) return quoted_source(*text);
  std::string out;
  if (const List* list = value.as_list()) {
    for (const Value& item : list->items) out += (out.empty() ? "" : ", ") + to_source(item);
    if (list->tuple) return "(" + out + (list->items.size() == 1 ? ",)" : ")");
    return "[" + out + "]";
  }
  if (const Dict* dict = value.as_dict()) {
    for (const auto& [key, item] : dict->items()) {
      out += (out.empty() ? "" : ", ") + quoted_source(key) + ": " + to_source(item);
    }
    return "{" + out + "}";
  }
  return value.is_undefined() ? "Undefined" : to_text(value);
}

std::string to_text(const Value& value) {
  if (const std::string* text = value.as_text()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* truth = value.as_bool()) return *truth ? "True" : "False";
  if (const std::int64_t* integer = value.as_integer()) return std::to_string(*integer);
  if (const double* real = value.as_real()) return real_text(*real, false);
  if (value.as_list() != nullptr || value.as_dict() != nullptr) return to_source(value);
  throw RenderError(value.kind() + " has no text");
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace sluice::jinja
