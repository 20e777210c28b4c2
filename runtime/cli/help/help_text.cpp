#include "runtime/cli/help/help_text.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/cli/command_output.hpp"
#include "runtime/cli/help/argument_values.hpp"
#include "runtime/cli/help/examples.hpp"

namespace sluice {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kIndent = 2;
constexpr std::size_t kColumn = 24;  // of the descriptions

// `text` in lines that end before kWidth; all but the first begin at `indent`.
std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    const bool first = out.empty();
    if (!first && column + 1 + word.size() >= kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return out;
}

// A name and its description, in two columns.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = std::string(kIndent, ' ') + name;
  if (text.empty()) return out + "\n";
  if (out.size() + 2 > kColumn) {
    out += "\n" + std::string(kColumn, ' ');
  } else {
    out.resize(kColumn, ' ');
  }
  return out + wrapped(text, kColumn, kColumn) + "\n";
}

std::string names_of(const std::vector<CLI::Option*>& options) {
  std::string names;
  std::vector<std::string> sorted;
  for (const CLI::Option* option : options) sorted.push_back(shown_name(*option));
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::vector<CLI::Option*> list(const std::set<CLI::Option*>& options) {
  return {options.begin(), options.end()};
}

std::string description_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!is_flag(option) && !option.get_default_str().empty()) {
    text += " (default: " + option.get_default_str() + ")";
  }
  if (option.get_required() && option.nonpositional()) text += " (required)";
  if (!option.get_needs().empty()) text += " (with " + names_of(list(option.get_needs())) + ")";
  if (!option.get_excludes().empty()) {
    text += " (not with " + names_of(list(option.get_excludes())) + ")";
  }
  return text;
}

std::string option_entry(const std::string& path, const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + ", ";
  names += shown_name(option);
  const std::string value = value_of(path, option);
  return entry(value.empty() ? names : names + " " + value, description_of(option));
}

std::string usage(const CLI::App& command, const std::string& path) {
  std::string text = program_name() + (path.empty() ? "" : " " + path);
  if (!command.get_subcommands({}).empty()) text += " COMMAND";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const bool several = option->get_items_expected_max() > 1;
    const std::string name = shown_name(*option) + (several ? "..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  return text + " [options]";
}

std::string examples_of(const std::string& path) {
  std::string text;
  for (const Example& example : all_examples()) {
    if (example.command != path) continue;
    text += "  " + program_name() + " " + std::string(example.line) + "\n      " +
            std::string(example.note) + "\n";
  }
  return text;
}

}  // namespace

std::string HelpText::heading(const std::string& text) const {
  return "\n" + (bold_ ? "\x1b[1m" + text + ":\x1b[0m\n" : text + ":\n");
}

std::string HelpText::make_help(const CLI::App* command, std::string, CLI::AppFormatMode) const {
  const std::string path = path_of(*command);
  std::string text = wrapped(command->get_description(), 0, 0) + "\n" + heading("Usage") + "  " +
                     wrapped(usage(*command, path), kIndent, 2 * kIndent) + "\n";
  std::string arguments, options, commands;
  for (const CLI::Option* option : command->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    if (option->get_positional()) {
      arguments += entry(shown_name(*option), description_of(*option));
    } else {
      options += option_entry(path, *option);
    }
  }
  for (const CLI::App* sub : command->get_subcommands({})) {
    commands += entry(sub->get_name(), sub->get_description());
  }
  if (!commands.empty()) text += heading("Commands") + commands;
  if (!arguments.empty()) text += heading("Arguments") + arguments;
  if (!options.empty()) text += heading("Options") + options;
  if (const std::string examples = examples_of(path); !examples.empty()) {
    text += heading("Examples") + examples;
  }
  return text;
}

}  // namespace sluice
