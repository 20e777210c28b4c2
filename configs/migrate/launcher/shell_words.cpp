#include "configs/migrate/launcher/shell_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/format.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 20;

struct Refused {
  std::size_t at;
  std::string what;
};

bool is_name(std::string_view text) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), good);
}

class Splitter {
 public:
  explicit Splitter(std::string_view line) : line_(line) {}

  ShellCommand split() {
    while (skip_blanks()) {
      const bool assigns = starts_assignment();
      std::string text = word();
      const bool leads = result_.words.empty() && assigns;
      (leads ? result_.environment : result_.words).push_back(std::move(text));
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool ended() const { return at_ >= line_.size(); }
  [[nodiscard]] bool joins() const {
    return line_.substr(at_).starts_with("\\\n") || line_.substr(at_).starts_with("\\\r\n");
  }
  void join() { at_ += line_[at_ + 1] == '\r' ? 3U : 2U; }
  [[noreturn]] void refuse(std::size_t at, std::string what) const { throw Refused{at, what}; }

  // To the next word; false at the end.
  bool skip_blanks() {
    while (!ended()) {
      const char c = line_[at_];
      if (joins()) {
        join();
      } else if (c == '#') {
        while (!ended() && line_[at_] != '\n') ++at_;
      } else if (c == '\n') {
        end_line();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else {
        break;
      }
    }
    return !ended();
  }
  // A second line is a second command, unless only blank lines and comments follow.
  void end_line() {
    const std::size_t end = at_;
    const bool began = !result_.words.empty() || !result_.environment.empty();
    ++at_;
    if (!began) return;
    while (skip_blanks()) {
      refuse(end,
             "the line ends here and another command follows; give one command, with \\ at "
             "the end of each line but the last");
    }
  }
  [[nodiscard]] bool starts_assignment() const {
    const std::string_view rest = line_.substr(at_);
    const std::size_t equals = rest.find('=');
    return equals != std::string_view::npos && is_name(rest.substr(0, equals));
  }
  std::string word() {
    std::string text;
    while (!ended()) {
      const char c = line_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') break;
      if (joins()) {
        join();
      } else if (c == '\'' || c == '"') {
        quoted(text, c);
      } else if (c == '\\') {
        if (at_ + 1 == line_.size()) refuse(at_, "a backslash with nothing after it; take it away");
        text += line_[at_ + 1];
        at_ += 2;
      } else {
        check_plain(c);
        text += c;
        ++at_;
      }
    }
    return text;
  }
  void quoted(std::string& text, char quote) {
    const std::size_t opening = at_++;
    while (!ended() && line_[at_] != quote) {
      const bool escapes = quote == '"' && line_[at_] == '\\' && at_ + 1 < line_.size();
      if (escapes && line_[at_ + 1] == '\n') {
        at_ += 2;
        continue;
      }
      if (escapes && std::string_view("$`\"\\").find(line_[at_ + 1]) != std::string_view::npos) {
        ++at_;
      } else if (quote == '"') {
        check_substitution();
      }
      text += line_[at_++];
    }
    if (ended()) {
      refuse(opening, format_text("the quote {} has no partner; close the text", quote));
    }
    ++at_;
  }
  void check_plain(char c) {
    check_substitution();
    const std::string_view rest = line_.substr(at_);
    constexpr std::array<std::string_view, 3> kJoined{"&&", "||", ";;"};
    for (const std::string_view joined : kJoined) {
      if (rest.starts_with(joined)) {
        refuse(at_, format_text("'{}' starts another command; give the launcher's alone", joined));
      }
    }
    if (c == ';' || c == '&') {
      refuse(at_, format_text("'{}' ends the command; give the launcher's alone", c));
    }
    if (c == '|') refuse(at_, "'|' is a pipe; give the command before it alone");
    if (c == '<' || c == '>') {
      refuse(at_, format_text("'{}' redirects a file; give the command without it", c));
    }
    if (c == '(' || c == ')') {
      refuse(at_, format_text("'{}' belongs to a subshell; give the command alone", c));
    }
  }
  void check_substitution() {
    const char c = line_[at_];
    if (c == '`' || line_.substr(at_).starts_with("$(")) {
      refuse(at_, "the output of a command; run the command and write its output here");
    }
    if (c != '$' || at_ + 1 == line_.size()) return;
    const std::size_t brace = line_[at_ + 1] == '{' ? 1 : 0;
    std::size_t end = at_ + 1 + brace;
    const auto part = [](char next) {
      return std::isalnum(static_cast<unsigned char>(next)) != 0 ||
             std::string_view("_@*#?!").find(next) != std::string_view::npos;
    };
    while (end < line_.size() && part(line_[end])) ++end;
    if (end == at_ + 1) return;
    const std::string name(line_.substr(at_ + 1 + brace, end - at_ - 1 - brace));
    refuse(at_, format_text("the variable ${} has no value here; write its value", name));
  }

  std::string_view line_;
  std::size_t at_ = 0;
  ShellCommand result_;
};

}  // namespace

ShellCommand split_shell(std::string_view line) {
  ShellCommand failed;
  if (line.size() > kMaxLine) {
    failed.error = "the line is larger than 1 MiB; a command has some hundred characters";
    return failed;
  }
  if (!is_clean_text(line, true)) {
    failed.error = "the line has control characters or is not UTF-8; give plain text";
    return failed;
  }
  try {
    ShellCommand command = Splitter(line).split();
    if (command.words.empty()) command.error = "the line has no command; give the launcher's";
    return command;
  } catch (const Refused& refused) {
    failed.error = format_text("character {}: {}", refused.at + 1, refused.what);
  }
  return failed;
}

std::string shell_quote(std::string_view word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./:=,@%+").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  // NAME=value keeps its name outside the quotes, or the shell sees no assignment.
  std::string text;
  const std::size_t equals = word.find('=');
  if (equals != std::string_view::npos && is_name(word.substr(0, equals))) {
    text = word.substr(0, equals + 1);
    word.remove_prefix(equals + 1);
  }
  if (word.empty() && !text.empty()) return text;
  text += '\'';
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + '\'';
}

std::string shell_join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_quote(word);
  }
  return text;
}

}  // namespace sluice::migrate
