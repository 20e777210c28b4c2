#include "configs/migrate/hjson_scan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& to, unsigned code) {
  const auto byte = [&to](unsigned value) { to += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// REQUIRES: `text` is a number by JSON's grammar.
HjsonNode number_of(std::string_view text, std::size_t at) {
  HjsonNode node;
  node.kind = HjsonNode::Kind::kNumber;
  node.text = text;
  node.number = std::strtod(node.text.c_str(), nullptr);
  if (!std::isfinite(node.number)) {
    throw HjsonSyntaxError{at, "the number " + in_quotes(text) +
                                   " is beyond the range of a double; write a smaller number"};
  }
  const bool has_point = text.find_first_of(".eE") != std::string_view::npos;
  const bool whole = std::trunc(node.number) == node.number;
  constexpr double kPythonInt =
      1e10;  // hjson.load returns larger numbers with an exponent as float
  node.is_float = has_point && !(whole && std::abs(node.number) < kPythonInt);
  std::int64_t integer = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), integer);
  constexpr double kInt64 = 9.2e18;
  if (!has_point && end.ec == std::errc()) {
    node.integer = integer;
  } else if (has_point && whole && std::abs(node.number) < kInt64) {
    node.integer = static_cast<std::int64_t>(node.number);
  }
  return node;
}

}  // namespace

bool is_punctuator(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':';
}

char HjsonScan::peek(std::size_t ahead) const {
  return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
}

std::string HjsonScan::found() const {
  if (ended()) return "the end of the text";
  if (peek() == '\n' || peek() == '\r') return "the end of the line";
  // A whole character, so that the message is UTF-8.
  std::size_t end = at_ + 1;
  while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;
  return in_quotes(text_.substr(at_, end - at_));
}

void HjsonScan::skip_space_and_comments() {
  while (!ended()) {
    if (is_space(peek())) {
      advance();
    } else if (peek() == '#' || (peek() == '/' && peek(1) == '/')) {
      at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
    } else if (peek() == '/' && peek(1) == '*') {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) {
        throw HjsonSyntaxError{at_,
                               "the comment is not closed; write */ at the end of the comment"};
      }
      at_ = end + 2;
    } else {
      return;
    }
  }
}

unsigned HjsonScan::hex4(std::size_t escape_at) {
  unsigned code = 0;
  const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || end.ptr != digits.data() + 4) {
    throw HjsonSyntaxError{escape_at,
                           "\\u without four hexadecimal digits; write for example \\u00e9"};
  }
  advance(4);
  return code;
}

// REQUIRES: at_ is behind the backslash.
void HjsonScan::escape(std::string& to, std::size_t opening) {
  const std::size_t escape_at = at_ - 1;
  if (ended()) throw HjsonSyntaxError{opening, "the text is not closed; write the closing quote"};
  constexpr std::string_view kFrom = "\"'\\/bfnrt";
  constexpr std::string_view kTo = "\"'\\/\b\f\n\r\t";
  const char c = peek();
  if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
    to += kTo[i];
    advance();
    return;
  }
  if (c != 'u') {
    throw HjsonSyntaxError{
        escape_at, "the escape \\ with " + found() + " does not exist; write \\\\ for a backslash"};
  }
  advance();
  unsigned code = hex4(escape_at);
  if ((code & 0xfc00) == 0xd800 && peek() == '\\' && peek(1) == 'u') {
    advance(2);
    const unsigned low = hex4(at_ - 2);
    code = (low & 0xfc00) == 0xdc00 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : code;
  }
  if ((code & 0xfffff800) == 0xd800) {
    throw HjsonSyntaxError{escape_at, "half of a surrogate pair; write both halves"};
  }
  append_utf8(to, code);
}

std::string HjsonScan::quoted_text() {
  const std::size_t opening = at_;
  const char quote = peek();
  std::string text;
  advance();
  while (!ended() && peek() != quote) {
    const char c = peek();
    if (c == '\n' || c == '\r') {
      throw HjsonSyntaxError{opening,
                             "the text is not closed on its line; write the closing quote, or "
                             "\\n for a line end"};
    }
    if (static_cast<unsigned char>(c) < 0x20) {
      throw HjsonSyntaxError{at_, "a tab in quoted text; write \\t"};
    }
    advance();
    if (c == '\\') {
      escape(text, opening);
    } else {
      text += c;
    }
  }
  if (ended()) throw HjsonSyntaxError{opening, "the text is not closed; write the closing quote"};
  advance();
  return text;
}

void HjsonScan::skip_indent(std::size_t most) {
  for (; most > 0 && !ended() && (peek() == ' ' || peek() == '\t' || peek() == '\r'); --most) {
    advance();
  }
}

std::string HjsonScan::multiline_text() {
  const std::size_t opening = at_;
  const std::size_t line_end =
      opening == 0 ? std::string_view::npos : text_.rfind('\n', opening - 1);
  const std::size_t indent = line_end == std::string_view::npos ? opening : opening - line_end - 1;
  advance(3);
  skip_indent(text_.size());
  if (peek() == '\n') {
    advance();
    skip_indent(indent);
  }
  std::string text;
  while (!ended()) {
    if (text_.substr(at_, 3) == "'''") {
      advance(3);
      if (!text.empty() && text.back() == '\n') text.pop_back();
      return text;
    }
    const char c = peek();
    advance();
    if (c != '\r') text += c;
    if (c == '\n') skip_indent(indent);
  }
  throw HjsonSyntaxError{opening, "the ''' text is not closed; write ''' at its end"};
}

std::string HjsonScan::key() {
  if (peek() == '"' || peek() == '\'') return quoted_text();
  const std::size_t begin = at_;
  while (!ended() && !is_space(peek()) && !is_punctuator(peek())) advance();
  if (at_ == begin) {
    throw HjsonSyntaxError{at_, "expected a key, found " + found() +
                                    "; write a key, with quotes around a key that holds "
                                    "{}[],: or spaces"};
  }
  const std::string key(text_.substr(begin, at_ - begin));
  while (!ended() && is_space(peek())) advance();
  if (peek() != ':') {
    throw HjsonSyntaxError{at_, "expected ':' after the key " + in_quotes(key) + ", found " +
                                    found() + "; write a colon between key and value"};
  }
  return key;
}

// True where a value without quotes ends: a comma, a closing bracket, a comment, the line's end.
bool HjsonScan::value_ends(std::size_t at) const {
  if (at >= text_.size()) return true;
  const char c = text_[at];
  if (c == '/') return at + 1 < text_.size() && (text_[at + 1] == '/' || text_[at + 1] == '*');
  return c == ',' || c == '}' || c == ']' || c == '#' || c == '\n' || c == '\r';
}

std::size_t HjsonScan::after_blanks(std::size_t at) const {
  while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  return at;
}

// Takes `expected` if it is the whole value.
bool HjsonScan::word(std::string_view expected) {
  if (text_.substr(at_, expected.size()) != expected) return false;
  const std::size_t end = after_blanks(at_ + expected.size());
  if (!value_ends(end)) return false;
  at_ = end;
  return true;
}

// The end of a number by JSON's grammar that is the whole value; at_ if there is none.
std::size_t HjsonScan::number_end() const {
  const auto at = [this](std::size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  const auto digits = [&at](std::size_t i) {
    while (is_digit(at(i))) ++i;
    return i;
  };
  const std::size_t begin = at_ + (peek() == '-' ? 1 : 0);
  std::size_t end = at(begin) == '0' ? begin + 1 : digits(begin);
  if (end == begin) return at_;
  if (at(end) == '.' && is_digit(at(end + 1))) end = digits(end + 1);
  if (at(end) == 'e' || at(end) == 'E') {
    const std::size_t sign = at(end + 1) == '-' || at(end + 1) == '+' ? 1 : 0;
    if (is_digit(at(end + 1 + sign))) end = digits(end + 1 + sign);
  }
  return value_ends(after_blanks(end)) ? end : at_;
}

HjsonNode HjsonScan::plain_value() {
  HjsonNode node;
  if (word("null")) return node;
  node.boolean = peek() == 't';
  if (word("true") || word("false")) {
    node.kind = HjsonNode::Kind::kBool;
    return node;
  }
  node.boolean = false;
  if (const std::size_t end = number_end(); end != at_) {
    node = number_of(text_.substr(at_, end - at_), at_);
    at_ = after_blanks(end);
    return node;
  }
  const std::size_t end = std::min(text_.find_first_of("\r\n", at_), text_.size());
  node.kind = HjsonNode::Kind::kText;
  node.text = trimmed(text_.substr(at_, end - at_));
  at_ = end;
  return node;
}

}  // namespace sluice::migrate
