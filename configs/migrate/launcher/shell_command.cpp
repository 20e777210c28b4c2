#include "configs/migrate/launcher/shell_command.hpp"

#include <algorithm>
#include <cctype>

#include "base/format.hpp"

namespace sluice::migrate {
namespace {

bool is_name(std::string_view text) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), good);
}

bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && is_name(word.substr(0, equals));
}

}  // namespace

ShellCommand split_command(std::string_view line, Newlines newlines) {
  ShellCommand command;
  ShellWords split = split_shell_words(line, newlines);
  for (const ShellProblem& problem : split.problems) {
    command.errors.push_back(format_text("line {}, character {}: {}", problem.place.line,
                                         problem.place.column, problem.what));
  }
  if (!command.errors.empty()) return command;
  command.notes = std::move(split.notes);
  for (ShellWord& word : split.words) {
    const bool leads = command.words.empty() && is_assignment(word.text);
    (leads ? command.environment : command.words).push_back(std::move(word.text));
  }
  if (command.words.empty())
    command.errors.push_back("the line has no command; give the launcher's");
  return command;
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
