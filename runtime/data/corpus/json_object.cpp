#include "runtime/data/corpus/json_object.hpp"

#include <array>
#include <cstdio>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The four digits of \uXXXX at `text[0]`; -1 if one is no digit.
int unit_of(std::string_view digits) {
  int value = 0;
  if (digits.size() < 4) return -1;
  for (const char c : digits.substr(0, 4)) {
    const int digit = hex_digit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

class Scanner {
 public:
  explicit Scanner(std::string_view line) : line_(line) {}

  JsonObject scan(std::span<const std::string_view> keys) {
    JsonObject object;
    object.values.resize(keys.size());
    skip_space();
    if (peek() != '{') {
      if (value() && at_end()) fail("not a JSON object");
    } else if (members(keys, object)) {
      (void)at_end();
    }
    object.error = std::move(error_);
    return object;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  void skip_space() {
    while (at_ < line_.size() &&
           (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n')) {
      ++at_;
    }
  }
  bool fail(const std::string& why) {
    if (error_.empty()) error_ = why;
    return false;
  }
  bool broken(const char* wanted) {
    return fail("not valid JSON at byte " + std::to_string(at_ + 1) + " of the line: " +
                (at_ >= line_.size() ? "the line ends, " : "") + wanted + " expected");
  }
  bool take(char c, const char* wanted) {
    skip_space();
    if (at_ >= line_.size() || line_[at_] != c) return broken(wanted);
    ++at_;
    return true;
  }
  bool at_end() {
    skip_space();
    return at_ == line_.size() || broken("the end of the line");
  }

  bool members(std::span<const std::string_view> keys, JsonObject& object) {
    ++at_;
    skip_space();
    if (peek() == '}') return ++at_, true;
    for (;;) {
      skip_space();
      const std::size_t key_begin = at_;
      if (!string("a key")) return false;
      const std::string_view key = line_.substr(key_begin, at_ - key_begin);
      if (!take(':', "':'")) return false;
      skip_space();
      const std::size_t begin = at_;
      if (!value()) return false;
      remember(key, {begin, at_}, keys, object);
      skip_space();
      if (peek() == '}') return ++at_, true;
      if (!take(',', "',' or '}'")) return false;
    }
  }

  static void remember(std::string_view key, JsonValue value,
                       std::span<const std::string_view> keys, JsonObject& object) {
    std::string decoded;
    std::string_view name = key.substr(1, key.size() - 2);
    if (name.find('\\') != std::string_view::npos) name = decoded = json_text(key).value_or("");
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == name) object.values[i] = value;
    }
  }

  // Any value. Open arrays and objects are a stack of their closing characters.
  bool value() {
    const std::size_t outermost = open_.size();
    for (;;) {
      skip_space();
      const char first = peek();
      if (first == '{' || first == '[') {
        ++at_;
        skip_space();
        const char close = first == '{' ? '}' : ']';
        if (peek() != close) {
          open_ += close;
          if (close == '}' && !key()) return false;
          continue;
        }
        ++at_;
      } else if (!scalar(first)) {
        return false;
      }
      if (!close_all(outermost)) return false;
      if (open_.size() == outermost) return true;
    }
  }
  bool key() { return skip_space(), string("a key") && take(':', "':'"); }

  // After a value: the closing characters, or a comma and the next key.
  bool close_all(std::size_t outermost) {
    while (open_.size() > outermost) {
      skip_space();
      if (peek() == open_.back() && at_ < line_.size()) {
        open_.pop_back();
        ++at_;
        continue;
      }
      if (!take(',', open_.back() == '}' ? "',' or '}'" : "',' or ']'")) return false;
      return open_.back() != '}' || key();
    }
    return true;
  }

  bool scalar(char first) {
    if (first == '"') return string("a string");
    if (first == '-' || is_digit(first)) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (line_.substr(at_).starts_with(word)) return at_ += word.size(), true;
    }
    return broken("a value");
  }

  bool digits() {
    if (!is_digit(peek())) return broken("a digit");
    while (is_digit(peek())) ++at_;
    return true;
  }
  bool number() {
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else if (!digits()) {
      return false;
    }
    if (peek() == '.' && (++at_, !digits())) return false;
    if (peek() != 'e' && peek() != 'E') return true;
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    return digits();
  }

  bool string(const char* wanted) {
    if (peek() != '"') return broken(wanted);
    const std::size_t begin = ++at_;
    bool ascii = true;
    for (; at_ < line_.size(); ++at_) {
      const auto byte = static_cast<unsigned char>(line_[at_]);
      if (byte == '"') break;
      if (byte < 0x20) return fail(place("a control character in a string"));
      ascii = ascii && byte < 0x80;
      if (byte == '\\' && !escape()) return false;
    }
    if (at_ == line_.size()) return broken("'\"'");
    const std::string_view text = line_.substr(begin, at_ - begin);
    if (!ascii && valid_utf8_prefix(text) != text.size()) {
      at_ = begin + valid_utf8_prefix(text);
      return fail(place("invalid UTF-8 in a string"));
    }
    ++at_;
    return true;
  }
  // Leaves at_ on the last character of the escape.
  bool escape() {
    ++at_;
    if (peek() == 'u') {
      if (unit_of(line_.substr(at_ + 1)) < 0) return broken("four hexadecimal digits after \\u");
      at_ += 4;
      return true;
    }
    if (peek() == '\0' || std::string_view("\"\\/bfnrt").find(peek()) == std::string_view::npos) {
      return broken("an escape");
    }
    return true;
  }
  [[nodiscard]] std::string place(const char* what) const {
    return "not valid JSON at byte " + std::to_string(at_ + 1) + " of the line: " + what;
  }

  std::string_view line_;
  std::size_t at_ = 0;
  std::string open_;
  std::string error_;
};

// The character that the escape \uXXXX, perhaps with a second one, stands for; `at` moves behind.
char32_t escaped(std::string_view text, std::size_t& at) {
  const int unit = unit_of(text.substr(at + 2));
  at += 6;
  if (unit < 0xD800 || unit > 0xDFFF) return static_cast<char32_t>(unit);
  const std::string_view rest = text.substr(at);
  const int low = rest.starts_with("\\u") ? unit_of(rest.substr(2)) : -1;
  if (unit > 0xDBFF || low < 0xDC00 || low > 0xDFFF) return 0xFFFD;
  at += 6;
  return static_cast<char32_t>(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
}

}  // namespace

JsonObject scan_json_object(std::string_view line, std::span<const std::string_view> keys) {
  return Scanner(line).scan(keys);
}

std::optional<std::string> json_text(std::string_view value) {
  if (value.size() < 2 || value.front() != '"') return std::nullopt;
  const std::string_view text = value.substr(1, value.size() - 2);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t backslash = std::min(text.find('\\', at), text.size());
    out.append(text, at, backslash - at);
    at = backslash;
    if (at == text.size()) break;
    const char c = text[at + 1];
    if (c == 'u') {
      append_utf8(escaped(text, at), out);
      continue;
    }
    static constexpr std::string_view kNames = "bfnrt", kBytes = "\b\f\n\r\t";
    const std::size_t name = kNames.find(c);
    out += name == std::string_view::npos ? c : kBytes[name];
    at += 2;
  }
  return out;
}

void append_json_string(std::string_view text, std::string& out) {
  static constexpr std::string_view kNames = "btn?fr";  // of U+0008 to U+000D
  out += '"';
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    std::size_t copied = 0;
    for (std::size_t i = 0; i < valid; ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c >= 0x20 && c != '"' && c != '\\') continue;
      out.append(text, copied, i - copied);
      copied = i + 1;
      out += '\\';
      if (c >= 0x20) {
        out += static_cast<char>(c);
      } else if (c >= 8 && c <= 13 && c != 11) {
        out += kNames[c - 8U];
      } else {
        std::array<char, 8> unit{};
        std::snprintf(unit.data(), unit.size(), "u%04x", c);
        out += unit.data();
      }
    }
    out.append(text, copied, valid - copied);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\uFFFD";
    text.remove_prefix(1);
  }
  out += '"';
}

}  // namespace sluice
