#include "runtime/cli/help/usage_mistakes.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "configs/suggest.hpp"

namespace sluice {
namespace {

using Names = std::vector<std::string_view>;

// What `called` calls by `word`: a command of `within`, or of one of its groups.
std::optional<std::string> meant_command(const CLI::App& within, const std::string& called,
                                         const std::string& word) {
  Names names, inner_names;
  std::vector<const CLI::App*> inner;
  for (const CLI::App* command : within.get_subcommands({})) {
    names.push_back(command->get_name());
    for (const CLI::App* sub : command->get_subcommands({})) {
      inner.push_back(sub);
      inner_names.push_back(sub->get_name());
    }
  }
  // A whole name of a group's command is a better guess than a near name.
  const bool exact = std::ranges::find(inner_names, word) != inner_names.end();
  if (const auto near = nearest(word, names); near && !exact) return std::string(*near);
  const auto near = nearest(word, inner_names);
  if (!near) return std::nullopt;
  const auto at = std::ranges::find(inner_names, *near) - inner_names.begin();
  const CLI::App* const sub = inner[static_cast<std::size_t>(at)];
  return called + " " + sub->get_parent()->get_name() + " " + sub->get_name();
}

std::string message(const std::string& called, const std::string& what,
                    const std::optional<std::string>& meant) {
  return called + ": there is no " + what + "; " + (meant ? "did you mean " + *meant + "? " : "") +
         called + " --help lists them";
}

std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* within = &app;
  std::string called = "sluice";
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    if (within->get_subcommands({}).empty()) return "";  // takes none
    const auto chosen = within->get_subcommands();
    if (chosen.empty()) {
      return message(called, "command '" + std::string(argv[i]) + "'",
                     meant_command(*within, called, argv[i]));
    }
    within = chosen.front();
    called += " " + within->get_name();
  }
  return "";
}

// The option of `command` for `given`, "--num_gpus" or "--num_gpus=4".
std::optional<std::string> meant_option(const CLI::App& command, std::string_view given) {
  std::string_view name = given.substr(0, given.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  Names names;
  for (const CLI::Option* option : command.get_options({})) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const auto has = [&](std::string_view option) {
    return std::ranges::find(names, option) != names.end();
  };
  if (const auto ours = option_for_foreign(name); ours && has(*ours)) {
    return "--" + std::string(*ours);
  }
  if (const auto near = nearest(name, names)) return "--" + std::string(*near);
  if (!has("set")) return std::nullopt;
  if (const auto key = key_for_foreign(name)) return "--set " + std::string(*key) + "=VALUE";
  return std::nullopt;
}

std::string unknown_arguments(const CLI::App& app) {
  std::string lines, called = "sluice";
  for (const CLI::App* within = &app; within != nullptr;) {
    bool after_option = false;  // a word behind an unknown option is most likely its value
    for (const std::string& word : within->remaining()) {
      const bool option = word.starts_with('-');
      if (!option && after_option) continue;
      after_option = option;
      lines += lines.empty() ? "" : "\n";
      lines += option ? message(called, "option '" + word + "'", meant_option(*within, word))
                      : called + ": no place for the argument '" + word + "'; " + called +
                            " --help shows the arguments";
    }
    const auto chosen = within->get_subcommands();
    within = chosen.empty() ? nullptr : chosen.front();
    if (within != nullptr) called += " " + within->get_name();
  }
  return lines;
}

}  // namespace

std::string usage_mistakes(const CLI::App& app, int argc, const char* const* argv) {
  const std::string command = unknown_command(app, argc, argv);
  return command.empty() ? unknown_arguments(app) : command;
}

}  // namespace sluice
