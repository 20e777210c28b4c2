#include "configs/migrate/shell_words.hpp"

#include <optional>
#include <utility>

#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kOperators = "|&;<>()";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_name_byte(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }

// "2e-5" of "${LR:-2e-5}": the text of a plain default, without the quotes around all of it;
// nullopt where there is none. Inside double quotes, single quotes are text.
std::optional<std::string_view> fallback_of(std::string_view expansion, bool quoted) {
  if (!expansion.starts_with("${") || !expansion.ends_with('}')) return std::nullopt;
  expansion.remove_prefix(2);
  expansion.remove_suffix(1);
  std::size_t at = 0;
  while (at < expansion.size() && is_name_byte(expansion[at])) ++at;
  const std::string_view rest = expansion.substr(at);
  if (at == 0 || !rest.starts_with(":-") || rest.size() == 2) return std::nullopt;
  std::string_view text = rest.substr(2);
  const char first = text.front();
  if (text.size() > 2 && first == text.back() && (first == '"' || (first == '\'' && !quoted))) {
    text = text.substr(1, text.size() - 2);
    return text.find_first_of("'\"\\$`") == std::string_view::npos ? std::optional(text)
                                                                   : std::nullopt;
  }
  const bool is_plain = text.find_first_of(" \t'\"\\$`") == std::string_view::npos;
  return is_plain ? std::optional(text) : std::nullopt;
}

class Splitter {
 public:
  Splitter(std::string_view text, Newlines newlines, ShellWords& result)
      : text_(text), newlines_(newlines), result_(result) {}

  void run() {
    while (!is_stopped_ && at_ < text_.size()) step();
    end_word();
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  [[nodiscard]] Place place() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }

  char take() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      line_begin_ = at_;
    }
    return c;
  }

  void problem(Place place, std::string what) {
    result_.problems.push_back({place, std::move(what)});
  }

  void stop(Place place, std::string what) {
    problem(place, std::move(what));
    is_stopped_ = true;
  }

  void begin_word() {
    if (word_) return;
    if (is_command_over_) {
      stop(place(),
           "a second command starts here; give one command, with \\ at the end of each line that "
           "goes on");
    } else if (result_.words.size() == kMaxShellWords) {
      stop(place(), "the command line has more than 20000 words; give a shorter one");
    }
    word_ = ShellWord{"", place()};
  }

  void end_word() {
    if (word_ && !is_stopped_) result_.words.push_back(std::move(*word_));
    word_.reset();
  }

  void step() {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') {
      take();
      take();
    } else if (c == '\n') {
      end_word();
      take();
      is_command_over_ = newlines_ == Newlines::kEndCommand && !result_.words.empty();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
      take();
    } else if (c == '#' && !word_) {
      while (at_ < text_.size() && peek() != '\n') take();
    } else if (kOperators.find(c) != std::string_view::npos) {
      operator_found();
    } else {
      word_part();
    }
  }

  void word_part() {
    begin_word();
    switch (peek()) {
      case '\'':
        return single_quotes();
      case '"':
        return double_quotes();
      case '\\':
        return backslash();
      case '$':
      case '`':
        return expansion(false);
      default: {
        const char other = take();
        if (word_) word_->text += other;  // begin_word() has made it
      }
    }
  }

  void backslash() {
    if (at_ + 1 == text_.size()) {
      return stop(place(), "a backslash ends the text; remove the backslash or add what follows");
    }
    take();
    word_->text += take();
  }

  void single_quotes() {
    const Place open = place();
    take();
    while (at_ < text_.size() && peek() != '\'') word_->text += take();
    if (at_ == text_.size()) return stop(open, "the quote ' has no end; close the quote");
    take();
  }

  void double_quotes() {
    const Place open = place();
    take();
    while (!is_stopped_ && at_ < text_.size() && peek() != '"') {
      const char next = peek(1);
      if (peek() == '\\' && (next == '"' || next == '\\' || next == '$' || next == '`')) {
        take();
        word_->text += take();
      } else if (peek() == '\\' && next == '\n') {
        take();
        take();
      } else if (peek() == '$' || peek() == '`') {
        expansion(true);
      } else {
        word_->text += take();
      }
    }
    if (is_stopped_) return;
    if (at_ == text_.size()) return stop(open, "the quote \" has no end; close the quote");
    take();
  }

  // $NAME, ${NAME...} (a plain default is its value), $1, $((...)), $(...), $'...', `...`; a lone
  // $ is itself.
  void expansion(bool quoted) {
    const Place begin = place();
    const std::size_t first = at_;
    if (text_.substr(at_).starts_with("$((")) return arithmetic(begin);
    if (take() == '`' || peek() == '(') {
      return stop(begin, "a shell would run a command here; write the command's output instead");
    }
    if (peek() == '{') {
      while (at_ < text_.size() && peek() != '}' && peek() != '\n') take();
      if (peek() != '}') return stop(begin, "the brace ${ has no end; close the brace");
      take();
    } else if (is_name_start(peek())) {
      while (is_name_byte(peek())) take();
    } else if (std::string_view("@*#?!-0123456789").find(peek()) != std::string_view::npos &&
               at_ < text_.size()) {
      take();
    } else if (!quoted && (peek() == '\'' || peek() == '"')) {
      return stop(begin, "quotes after $ are bash's own; write the plain text instead");
    } else {
      word_->text += '$';
      return;
    }
    const std::string name(text_.substr(first, at_ - first));
    if (const auto fallback = fallback_of(name, quoted)) {
      word_->text += *fallback;
      result_.notes.push_back(printable(name) + ": the default " + in_quotes(*fallback) +
                              " was taken; if the job sets the variable, write its value instead");
      return;
    }
    problem(begin, "the variable " + printable(name) +
                       " has no value here; write the value instead of the variable");
    word_->text += name;
  }

  // $((A * B)): its variables have no value here.
  void arithmetic(Place begin) {
    const std::size_t first = at_++;  // the $
    int depth = 0;
    do {
      depth += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      take();
    } while (depth > 0 && at_ < text_.size() && peek() != '\n');
    const std::string name(text_.substr(first, at_ - first));
    if (depth > 0) return stop(begin, "the arithmetic $(( has no end; close it with ))");
    problem(begin, "the arithmetic " + printable(name) +
                       " is not computed here; write its result instead");
    if (word_) word_->text += name;
  }

  void operator_found() {
    const std::string_view rest = text_.substr(at_);
    const bool doubled = rest.size() > 1 && rest[0] == rest[1];
    const std::string name(rest.substr(0, doubled ? 2 : 1));
    if (name == "<" || name == ">" || name == "<<" || name == ">>") {
      return stop(place(), "the redirection " + name + " is no argument; leave it out");
    }
    if (name == "|") {
      return stop(place(), "the pipe | is no argument; leave out the pipe and what follows");
    }
    stop(place(), "'" + name + "' belongs to the shell; give one command without '" + name +
                      "', or quote the word");
  }

  std::string_view text_;
  Newlines newlines_;
  ShellWords& result_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t line_begin_ = 0;
  std::optional<ShellWord> word_;
  bool is_command_over_ = false;
  bool is_stopped_ = false;
};

}  // namespace

ShellWords split_shell_words(std::string_view text, Newlines newlines) {
  ShellWords result;
  if (text.size() > kMaxShellBytes) {
    result.problems.push_back({{1, 1}, "the command line has more than 1 MiB; give a shorter one"});
    return result;
  }
  if (!is_clean_text(text, true)) {
    result.problems.push_back(
        {{1, 1}, "the text has control characters or is not UTF-8; save the text as UTF-8"});
    return result;
  }
  Splitter(text, newlines, result).run();
  return result;
}

}  // namespace sluice::migrate
