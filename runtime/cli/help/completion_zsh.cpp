// One function, for `source <(sluice completion zsh)` and as the file _sluice in a folder of fpath.
#include "runtime/cli/help/completion.hpp"
#include "runtime/launch/hosts/agent.hpp"

namespace sluice {
namespace {

constexpr const char* kBegin = R"(#compdef sluice
# zsh completion of sluice; made by: sluice completion zsh
_sluice() {
  local place="" prev="${words[CURRENT-1]}" word key
  local -a commands options values keys
  local files="" settings="" any_key=""
  _sluice_command
  for word in "${(@)words[2,CURRENT-1]}"; do
    if (( ${commands[(I)${word}:*]} )); then
      place="${place:+$place }$word"
      _sluice_command
    fi
  done
  if [[ $PREFIX == --*=* ]]; then
    prev="${PREFIX%%=*}"
    compset -P 1 '*='
  fi
  if ! _sluice_value; then
    if [[ $PREFIX == -* ]]; then
      _describe -t options option options
      return
    fi
    (( $#commands )) && _describe -t commands command commands
  fi
  if [[ -n $settings ]]; then
    if compset -P 1 '*='; then
      key="${IPREFIX%=}"
      key="${key##*[= ]}"
      _sluice_setting
      compadd -a values
    else
      _sluice_keys
      _describe -t keys key keys -S =
    fi
    return
  fi
  if [[ -n $any_key ]]; then
    _sluice_keys
    _describe -t keys key keys
    return
  fi
  (( $#values )) && compadd -a values
  case $files in
    files) _files ;;
    folders) _files -/ ;;
  esac
}
)";

constexpr const char* kEnd = R"(if [[ $funcstack[1] == _sluice ]]; then
  _sluice "$@"
else
  compdef _sluice sluice
fi
)";

// name:description, as _describe reads it.
std::string described(const std::string& name, const std::string& help) {
  std::string escaped;
  for (const char c : name) {
    if (c == ':') escaped += '\\';
    escaped += c;
  }
  return shell_quoted(escaped + ":" + help);
}

std::string list(const std::vector<std::string>& words) {
  std::string text = "(";
  for (const std::string& word : words) {
    if (text.size() > 1) text += " ";
    text += shell_quoted(word);
  }
  return text + ")";
}

std::string assignments(const Completion& value) {
  std::string text = "values=" + list(value.words) + " files=\"\" settings=\"\" any_key=\"\"";
  if (value.files) text += " files=files";
  if (value.folders && !value.files) text += " files=folders";
  if (value.settings) text += " settings=yes";
  if (value.keys) text += " any_key=yes";
  return text;
}

const CompletedCommand* find(const CompletionTable& table, const std::string& path) {
  for (const CompletedCommand& command : table.commands) {
    if (command.path == path) return &command;
  }
  return nullptr;
}

std::string command_cases(const CompletionTable& table) {
  std::string text = "_sluice_command() {\n  case $place in\n";
  for (const CompletedCommand& command : table.commands) {
    std::string below, options;
    for (const std::string& name : command.commands) {
      const auto* sub = find(table, command.path.empty() ? name : command.path + " " + name);
      below += " " + described(name, sub == nullptr ? "" : sub->help);
    }
    for (const CompletedOption& option : command.options) {
      for (const std::string& name : option.names) options += " " + described(name, option.help);
    }
    text += "    " + shell_quoted(command.path) + ")\n      commands=(" + below +
            " )\n      options=(" + options + " )\n      " + assignments(command.arguments) +
            " ;;\n";
  }
  return text + "  esac\n}\n";
}

std::string key_functions(const CompletionTable& table) {
  std::string keys, cases;
  for (const CompletedKey& key : table.keys) {
    keys += "\n    " + described(key.path, key.help);
    if (key.values.empty()) continue;
    cases += "    " + key.path + ") values=" + list(key.values) + " ;;\n";
  }
  return "_sluice_keys() {\n  keys=(" + keys +
         " )\n}\n_sluice_setting() {\n  values=()\n  case $key in\n" + cases + "  esac\n}\n";
}

}  // namespace

std::string zsh_completion(const CompletionTable& table) {
  return kBegin + command_cases(table) + value_cases(table, "$place", assignments) +
         key_functions(table) + kEnd;
}

}  // namespace sluice
