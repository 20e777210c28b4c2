// One function. Bash breaks words at '=' and ':', so the function takes the words from the line
// itself, and gives only the part of a reply that comes after the last break.
#include "runtime/cli/help/completion.hpp"
#include "runtime/launch/hosts/agent.hpp"

namespace sluice {
namespace {

constexpr const char* kBegin = R"(# bash completion of sluice; made by: sluice completion bash
_sluice() {
  local -a words
  local line="${COMP_LINE:0:COMP_POINT}" cur="" prev path="" word
  local commands="" options="" values="" files="" settings="" keys="" key
  read -ra words <<<"$line"
  if [[ $line != *[[:space:]] && ${#words[@]} -gt 1 ]]; then
    cur="${words[-1]}"
    unset 'words[-1]'
  fi
  prev="${words[-1]}"
  if [[ $cur == --*=* ]]; then
    prev="${cur%%=*}"
    cur="${cur#*=}"
  fi
  _sluice_command
  for word in "${words[@]:1}"; do
    if [[ " $commands " == *" $word "* ]]; then
      path="${path:+$path }$word"
      _sluice_command
    fi
  done
  _sluice_value || {
    if [[ $cur == -* ]]; then
      values="$options" files="" settings="" keys=""
    else
      values="$values $commands"
    fi
  }
  COMPREPLY=()
  if [[ $settings ]]; then
    if [[ $cur == *=* ]]; then
      key="${cur%%=*}"
      _sluice_setting
      COMPREPLY=($(compgen -P "$key=" -W "$values" -- "${cur#*=}"))
    else
      _sluice_keys
      COMPREPLY=($(compgen -S = -W "$values" -- "$cur"))
      compopt -o nospace
    fi
  elif [[ $keys ]]; then
    _sluice_keys
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    if [[ $files ]]; then
      local IFS=$'\n'
      COMPREPLY+=($(compgen "$files" -- "$cur"))
      compopt -o filenames
    fi
  fi
  local i break
  for break in = :; do
    [[ $COMP_WORDBREAKS == *"$break"* && $cur == *"$break"* ]] || continue
    for i in "${!COMPREPLY[@]}"; do
      COMPREPLY[i]="${COMPREPLY[i]#"${cur%"$break"*}$break"}"
    done
  done
}
)";

constexpr const char* kEnd = R"(complete -F _sluice sluice
)";

std::string assignments(const Completion& value) {
  std::string text = "values=" + shell_quoted(spaced(value.words));
  if (value.files) text += " files=-f";
  if (value.folders && !value.files) text += " files=-d";
  if (value.settings) text += " settings=yes";
  if (value.keys) text += " keys=yes";
  return text;
}

std::string command_cases(const CompletionTable& table) {
  std::string text = "_sluice_command() {\n  files=\"\" settings=\"\" keys=\"\"\n  case $path in\n";
  for (const CompletedCommand& command : table.commands) {
    std::vector<std::string> options;
    for (const CompletedOption& option : command.options) {
      options.insert(options.end(), option.names.begin(), option.names.end());
    }
    text += "    " + shell_quoted(command.path) +
            ") commands=" + shell_quoted(spaced(command.commands)) +
            " options=" + shell_quoted(spaced(options)) + " " + assignments(command.arguments) +
            " ;;\n";
  }
  return text + "  esac\n}\n";
}

// Nothing of the command's own arguments stays.
std::string anew(const Completion& value) {
  return "files=\"\" settings=\"\" keys=\"\" " + assignments(value);
}

std::string key_functions(const CompletionTable& table) {
  std::string keys, cases;
  for (const CompletedKey& key : table.keys) {
    keys += (keys.empty() ? "" : " ") + key.path;
    if (key.values.empty()) continue;
    cases += "    " + key.path + ") values=" + shell_quoted(spaced(key.values)) + " ;;\n";
  }
  return "_sluice_keys() { values=" + shell_quoted(keys) +
         "; }\n_sluice_setting() {\n  values=\"\"\n  case $key in\n" + cases + "  esac\n}\n";
}

}  // namespace

std::string bash_completion(const CompletionTable& table) {
  return kBegin + command_cases(table) + value_cases(table, "$path", anew) + key_functions(table) +
         kEnd;
}

}  // namespace sluice
