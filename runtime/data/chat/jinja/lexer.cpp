#include "runtime/data/chat/jinja/lexer.hpp"

#include <algorithm>
#include <optional>

#include "runtime/data/chat/jinja/strings.hpp"
#include "runtime/data/chat/jinja/syntax.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice::jinja {
namespace {

constexpr std::size_t kLongestTemplate = 4U << 20U;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Line ends become \n; one at the end is dropped.
std::string with_plain_lines(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1U : 0U;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw SyntaxError("line " + std::to_string(line_) + ": " + why);
  }
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void advance(std::size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
    if (bytes > 0) line_starts_ = source_[at_ - 1] == '\n';
  }
  void skip_space() {
    const std::string_view left = rest();
    advance(left.size() - strip(left, "", true, false).size());
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  // Text up to the next tag, then the tag.
  void read_text() {
    std::size_t tag = at_;
    while ((tag = source_.find('{', tag)) != source_.npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    std::string_view text = rest().substr(0, std::min(tag, source_.size()) - at_);
    if (tag == source_.npos) {
      if (!text.empty()) add(TokenKind::kText, std::string(text));
      advance(text.size());
      return;
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const std::size_t bytes = text.size();
    if (sign == '-') {
      text = strip(text, "", false, true);
    } else if (sign != '+' && type != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
    advance(bytes);
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (type == '#') return skip_comment();
    if (type == '%' && read_raw()) return;
    add(type == '%' ? TokenKind::kBlockBegin : TokenKind::kOutputBegin, "");
    read_tag(type == '%' ? "%}" : "}}");
  }

  [[nodiscard]] std::string_view without_indent(std::string_view text) const {
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_starts_) return text;
    return strip(text.substr(line), "", true, false).empty() ? text.substr(0, line) : text;
  }

  // Behind a block's or comment's end.
  void after_end(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && peek() == '\n') {
      advance(1);
    }
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail("a comment has no end '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_end(sign);
  }

  // {% raw %} ... {% endraw %}, from behind its "{%".
  bool read_raw() {
    const std::string_view left = rest();
    std::string_view name = strip(left, "", true, false);
    if (!name.starts_with("raw")) return false;
    name = strip(name.substr(3), "", true, false);
    const bool minus = name.starts_with("-%}");
    if (!minus && !name.starts_with("%}")) return false;
    advance(left.size() - name.size() + (minus ? 3 : 2));
    if (minus) skip_space();
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != source_.npos; tag += 2) {
      std::size_t at = tag + 2;
      const char before = at < source_.size() ? source_[at] : '\0';
      if (before == '-' || before == '+') ++at;
      std::string_view end = strip(std::string_view(source_).substr(at), "", true, false);
      if (!end.starts_with("endraw")) continue;
      end = strip(end.substr(6), "", true, false);
      const char after = end.empty() ? '\0' : end[0];
      if (after == '-' || after == '+') end.remove_prefix(1);
      if (!end.starts_with("%}")) continue;
      std::string_view text = rest().substr(0, tag - at_);
      if (before == '-') text = strip(text, "", false, true);
      if (before != '-' && before != '+') text = without_indent(text);
      add(TokenKind::kText, std::string(text));
      advance(source_.size() - end.size() + 2 - at_);
      after_end(after);
      return true;
    }
    fail("'raw' has no 'endraw'");
  }

  void read_tag(std::string_view end) {
    int open = 0;
    const int first_line = line_;
    for (;;) {
      skip_space();
      const std::string_view left = rest();
      const bool sign = left.starts_with('-') || (left.starts_with('+') && end == "%}");
      if (open == 0 && (left.starts_with(end) || (sign && left.substr(1).starts_with(end)))) {
        add(end == "%}" ? TokenKind::kBlockEnd : TokenKind::kOutputEnd, "");
        const char mark = sign ? left[0] : '\0';
        advance(end.size() + (sign ? 1 : 0));
        if (end == "%}" || mark == '-') after_end(mark);
        return;
      }
      if (left.empty()) {
        fail("the tag of line " + std::to_string(first_line) + " has no end '" + std::string(end) +
             "'");
      }
      read_token(open);
    }
  }

  void read_token(int& open) {
    const char c = peek();
    if (c == '"' || c == '\'') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_letter(c)) {
      std::size_t size = 1;
      while (is_letter(peek(size)) || is_digit(peek(size))) ++size;
      add(TokenKind::kName, std::string(rest().substr(0, size)));
      return advance(size);
    }
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!rest().starts_with(op)) continue;
      add(TokenKind::kOperator, std::string(op));
      return advance(2);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      fail(std::string("unexpected character '") + c + "'");
    }
    open += c == '(' || c == '[' || c == '{' ? 1 : 0;
    open -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    if (open < 0) fail(std::string("unexpected '") + c + "'");
    add(TokenKind::kOperator, std::string(1, c));
    advance(1);
  }

  void read_number() {
    std::size_t size = 0;
    bool real = false;
    while (is_digit(peek(size)) || (peek(size) == '_' && is_digit(peek(size + 1)))) ++size;
    if (peek(size) == '.' && is_digit(peek(size + 1))) {
      real = true;
      for (++size; is_digit(peek(size));) ++size;
    }
    if ((peek(size) | 0x20) == 'e') {
      const std::size_t sign = peek(size + 1) == '-' || peek(size + 1) == '+' ? 1 : 0;
      if (is_digit(peek(size + 1 + sign))) {
        real = true;
        for (size += 1 + sign; is_digit(peek(size));) ++size;
      }
    }
    std::string text(rest().substr(0, size));
    std::erase(text, '_');
    add(real ? TokenKind::kReal : TokenKind::kInteger, std::move(text));
    advance(size);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2U : 1U;
    if (end >= source_.size()) fail("a string has no end");
    add(TokenKind::kString, unescaped(rest().substr(1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // The code that `digits` characters write, or nothing.
  static std::optional<char32_t> number_in(std::string_view text, std::size_t digits,
                                           unsigned base) {
    if (text.size() < digits) return std::nullopt;
    char32_t value = 0;
    for (const char c : text.substr(0, digits)) {
      const auto lower = static_cast<unsigned char>(c | 0x20);
      const unsigned digit = is_digit(c)                    ? static_cast<unsigned>(c - '0')
                             : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10U
                                                            : 99U;
      if (digit >= base) return std::nullopt;
      value = value * base + digit;
    }
    return value;
  }

  // Python's escapes in a string.
  [[nodiscard]] std::string unescaped(std::string_view text) const {
    static constexpr std::string_view kNamed = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    std::string out;
    while (!text.empty()) {
      if (text[0] != '\\' || text.size() == 1) {
        out += text[0];
        text.remove_prefix(1);
        continue;
      }
      const char c = text[1];
      text.remove_prefix(2);
      if (c == '\n') continue;
      std::size_t named = 0;
      while (named < kNamed.size() && kNamed[named] != c) named += 2;
      if (named < kNamed.size()) {
        out += kNamed[named + 1];
        continue;
      }
      append_coded(c, text, out);
    }
    return out;
  }

  // \xhh, \uhhhh, \Uhhhhhhhh, \ooo; any other character keeps its backslash.
  void append_coded(char c, std::string_view& text, std::string& out) const {
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      const auto code = number_in(text, digits, 16);
      if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
        fail(std::string("a string has a bad escape \\") + c);
      }
      append_utf8(*code, out);
      text.remove_prefix(digits);
      return;
    }
    if (c < '0' || c > '7') {
      out += {'\\', c};
      return;
    }
    auto code = static_cast<char32_t>(c - '0');
    for (int more = 0; more < 2 && !text.empty() && text[0] >= '0' && text[0] <= '7'; ++more) {
      code = code * 8 + static_cast<char32_t>(text[0] - '0');
      text.remove_prefix(1);
    }
    append_utf8(code, out);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) {
  if (source.size() > kLongestTemplate) throw SyntaxError("line 1: longer than 4 MiB");
  if (valid_utf8_prefix(source) != source.size()) throw SyntaxError("line 1: not valid UTF-8");
  return Lexer(with_plain_lines(source)).run();
}

}  // namespace sluice::jinja
