#include <string_view>

#include "configs/schema.hpp"
#include "runtime/cli/help/argument_values.hpp"
#include "runtime/cli/help/completion.hpp"
#include "runtime/launch/hosts/agent.hpp"

namespace sluice {
namespace {

// `value`: as value_of() has it, e.g. "auto|never|DIR".
void add_alternatives(std::string_view value, Completion& to) {
  while (!value.empty()) {
    const std::size_t bar = value.find('|');
    const std::string_view one = value.substr(0, bar);
    value.remove_prefix(bar == std::string_view::npos ? value.size() : bar + 1);
    if (one == "FILE" || one == "PATH" || one == "PREFIX") to.files = true;
    if (one == "DIR" || one == "PATH") to.folders = true;
    if (one == "KEY=VALUE") to.settings = true;
    if (one == "KEY") to.keys = true;
    if (one.front() >= 'a' && one.front() <= 'z') to.words.emplace_back(one);
  }
}

CompletedOption completed(const std::string& path, const CLI::Option& option) {
  CompletedOption to;
  to.help = option.get_description();
  for (const std::string& name : option.get_lnames()) to.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) to.names.push_back("-" + name);
  to.takes_value = !is_flag(option);
  add_alternatives(value_of(path, option), to.value);
  return to;
}

void add_command(const CLI::App& command, std::vector<CompletedCommand>& to) {
  CompletedCommand mine{.path = path_of(command), .help = command.get_description()};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      add_alternatives(value_of(mine.path, *option), mine.arguments);
    } else {
      mine.options.push_back(completed(mine.path, *option));
    }
  }
  for (const CLI::App* sub : command.get_subcommands({})) mine.commands.push_back(sub->get_name());
  to.push_back(std::move(mine));
  for (const CLI::App* sub : command.get_subcommands({})) add_command(*sub, to);
}

CompletedKey completed(const Key& key) {
  CompletedKey to{.path = key.path(), .help = std::string(key.doc)};
  for (const std::string_view choice : key.rules.choices) to.values.emplace_back(choice);
  if (key.rules.type == KeyType::kBool) to.values = {"true", "false"};
  if (!key.rules.zero_word.empty()) to.values.emplace_back(key.rules.zero_word);
  return to;
}

}  // namespace

CompletionTable completion_table(const CLI::App& program) {
  CompletionTable table;
  add_command(program, table.commands);
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) table.keys.push_back(completed(key));
  }
  return table;
}

std::string spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string value_cases(const CompletionTable& table, const std::string& path,
                        std::string (*assign)(const Completion&)) {
  std::string text = "_sluice_value() {\n  case \"" + path + " $prev\" in\n";
  for (const CompletedCommand& command : table.commands) {
    for (const CompletedOption& option : command.options) {
      if (!option.takes_value) continue;
      std::string patterns;
      for (const std::string& name : option.names) {
        patterns += (patterns.empty() ? "" : "|") + shell_quoted(command.path + " " + name);
      }
      text += "    " + patterns + ") " + assign(option.value) + " ;;\n";
    }
  }
  return text + "    *) return 1 ;;\n  esac\n}\n";
}

}  // namespace sluice
