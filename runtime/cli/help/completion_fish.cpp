#include "runtime/cli/help/completion.hpp"

namespace sluice {
namespace {

constexpr const char* kBegin = R"(# fish completion of sluice; made by: sluice completion fish
# The command on the line, as "data prepare".
function __sluice_at
    set -l place
    for word in (commandline -opc)[2..-1]
        if contains -- (string join -- ' ' $place $word) $__sluice_commands
            set -a place $word
        end
    end
    set -l path (string join -- ' ' $place)
    test "$path" = "$argv[1]"
end
complete -c sluice -e
complete -c sluice -f
)";

// 'text' for fish, whose single quotes know \' and \\.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "'";
}

// What completes a value, as options of `complete`; empty: nothing.
std::string offers(const Completion& value) {
  std::string words = spaced(value.words);
  if (value.settings) words = "(__sluice_settings)";
  if (value.keys) words = "(__sluice_keys)";
  if (value.folders && !value.files) {
    words += (words.empty() ? "" : " ") + std::string("(__fish_complete_directories)");
  }
  std::string text;
  if (value.files) text += " -F";
  if (!words.empty()) text += " -a " + fish_quoted(words);
  return text;
}

std::string option_line(const std::string& at, const CompletedOption& option) {
  std::string line = at;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.takes_value) line += option.value.files ? " -r" : " -x";
  return line + offers(option.value) + " -d " + fish_quoted(option.help) + "\n";
}

std::string command_lines(const CompletionTable& table) {
  std::string text, paths;
  for (const CompletedCommand& command : table.commands) {
    if (!command.path.empty()) paths += " " + fish_quoted(command.path);
    const std::string at =
        "complete -c sluice -n " + fish_quoted("__sluice_at '" + command.path + "'");
    for (const std::string& name : command.commands) {
      const std::string path = command.path.empty() ? name : command.path + " " + name;
      for (const CompletedCommand& sub : table.commands) {
        if (sub.path == path) text += at + " -f -a " + name + " -d " + fish_quoted(sub.help) + "\n";
      }
    }
    for (const CompletedOption& option : command.options) text += option_line(at, option);
    if (const std::string arguments = offers(command.arguments); !arguments.empty()) {
      text += at + arguments + "\n";
    }
  }
  return "set -g __sluice_commands" + paths + "\n" + text;
}

// Lines "zero.stage=2<tab>description", and the keys whose values are free as "zero.bucket=".
std::string key_functions(const CompletionTable& table) {
  std::string settings, keys;
  for (const CompletedKey& key : table.keys) {
    const std::string help = "\\t" + fish_quoted(key.help);
    keys += " \\\n        " + key.path + help;
    if (key.values.empty()) settings += " \\\n        " + key.path + "=" + help;
    for (const std::string& value : key.values) {
      settings += " \\\n        " + key.path + "=" + fish_quoted(value) + help;
    }
  }
  return "function __sluice_settings\n    printf '%s\\n'" + settings +
         "\nend\nfunction __sluice_keys\n    printf '%s\\n'" + keys + "\nend\n";
}

}  // namespace

std::string fish_completion(const CompletionTable& table) {
  return kBegin + key_functions(table) + command_lines(table);
}

}  // namespace sluice
