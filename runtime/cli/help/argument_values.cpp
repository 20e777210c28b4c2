#include "runtime/cli/help/argument_values.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>

#include "runtime/plan/machine_profile.hpp"

namespace sluice {
namespace {

struct Row {
  std::string_view command;  // "": every command with such an argument and no row of its own
  std::string_view argument;
  std::string_view value;
};

// Only arguments that CLI11 knows as text: numbers and checked words describe themselves.
constexpr std::array kRows = {
    Row{"", "config", "FILE"},
    Row{"", "--set", "KEY=VALUE"},
    Row{"", "--checkpoint", "DIR"},
    Row{"", "--html", "FILE"},
    Row{"", "--json-key", "NAME"},
    Row{"", "--tokenizer", "bytes|PATH"},
    Row{"", "--output", "DIR"},
    Row{"", "--template", "PATH"},
    Row{"", "inputs", "PATH"},
    Row{"", "input", "PATH"},
    Row{"", "text", "PATH"},
    Row{"", "folder", "DIR"},
    Row{"", "path", "DIR"},
    Row{"", "checkpoint", "DIR"},
    Row{"", "--bytes", "SIZE"},
    Row{"train", "--resume", "auto|never|DIR"},
    Row{"plan", "--profile", "PROFILE|FILE"},
    Row{"plan", "--tokens", "COUNT"},
    Row{"eval", "--text", "PATH"},
    Row{"generate", "--prompt", "TEXT"},
    Row{"generate", "--prompt-file", "FILE"},
    Row{"data prepare", "--output", "PREFIX"},
    Row{"data merge", "--output", "PREFIX"},
    Row{"data split", "--output", "PREFIX"},
    Row{"data shuffle", "--output", "PREFIX"},
    Row{"data clean", "--url-key", "NAME"},
    Row{"data clean", "--recipe", "openwebtext|fineweb|none"},
    Row{"data clean", "--filter", "NAME:OPTIONS"},
    Row{"data clean", "--without", "NAME"},
    Row{"data dedupe", "--url-key", "NAME"},
    Row{"data dedupe", "--preset", "fineweb|openwebtext|exact|none"},
    Row{"data dedupe", "--shingle", "UNIT:N"},
    Row{"data dedupe", "--against", "PATH"},
    Row{"migrate", "--from-version", "VERSION"},
    Row{"migrate", "--launch", "COMMAND"},
    Row{"migrate", "--trainer", "FILE"},
    Row{"migrate", "--accelerate", "FILE"},
    Row{"migrate", "--megatron", "FILE"},
    Row{"migrate", "--torchtitan", "FILE"},
    Row{"migrate", "--model", "DIR"},
    Row{"migrate", "--allow", "KEY"},
    Row{"migrate", "--output", "FILE"},
    Row{"bench nvme", "paths", "DIR"},
    Row{"bench nvme", "--blocks", "SIZES"},
    Row{"bench comm", "--transports", "gloo|host|mapped|local"},
    Row{"bench adam", "--elems", "COUNT"},
    Row{"checkpoint export", "--tokenizer", "DIR"},
    Row{"checkpoint import", "--config", "FILE"},
    Row{"doctor", "--nvme-path", "DIR"},
    Row{"doctor", "--out", "FILE"},
    Row{"explain", "key", "KEY"},
    Row{"report", "runs", "DIR"},
    Row{"report", "--output", "FILE"},
};

const Row* row_of(const std::string& command, const std::string& argument) {
  const Row* common = nullptr;
  for (const Row& row : kRows) {
    if (row.argument != argument) continue;
    if (row.command == command) return &row;
    if (row.command.empty()) common = &row;
  }
  return common;
}

// "a|b" of CLI11's "TEXT:{a,b}"; empty without such a list.
std::string checked_words(const std::string& type) {
  const std::size_t open = type.find('{');
  if (open == std::string::npos) return "";
  std::string words = type.substr(open + 1, type.find('}') - open - 1);
  std::replace(words.begin(), words.end(), ',', '|');
  return words;
}

std::string value_of_type(const std::string& type) {
  if (const std::string words = checked_words(type); !words.empty()) return words;
  if (type.find("SIZE") != std::string::npos) return "SIZE";
  if (type.find("FLOAT") != std::string::npos) return "X";
  return "N";
}

bool is_free_text(const std::string& type) {
  return type.starts_with("TEXT") && checked_words(type).empty();
}

std::string with_profiles(std::string_view value) {
  constexpr std::string_view kProfile = "PROFILE";
  if (!value.starts_with(kProfile)) return std::string(value);
  std::string words;
  for (const std::string& name : profile_names()) words += (words.empty() ? "" : "|") + name;
  return words + std::string(value.substr(kProfile.size()));
}

void check_command(const CLI::App& command, std::set<const Row*>& used,
                   std::vector<std::string>& faults) {
  const std::string path = path_of(command);
  for (const CLI::Option* option : command.get_options()) {
    if (is_flag(*option) || !is_free_text(option->get_type_name())) continue;
    const Row* row = row_of(path, shown_name(*option));
    if (row == nullptr) {
      faults.push_back("sluice " + path + ": " + shown_name(*option) +
                       " has no row in runtime/cli/help/argument_values.cpp");
    } else {
      used.insert(row);
    }
  }
  for (const CLI::App* sub : command.get_subcommands({})) check_command(*sub, used, faults);
}

}  // namespace

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }

std::string shown_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  return option.get_name(true, false);
}

std::string path_of(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "";
  const std::string above = path_of(*command.get_parent());
  return above.empty() ? command.get_name() : above + " " + command.get_name();
}

std::string value_of(const std::string& command, const CLI::Option& option) {
  if (is_flag(option)) return "";
  const std::string type = option.get_type_name();
  if (!is_free_text(type)) return value_of_type(type);
  const Row* row = row_of(command, shown_name(option));
  return row == nullptr ? "TEXT" : with_profiles(row->value);
}

std::vector<std::string> value_table_faults(const CLI::App& program) {
  std::set<const Row*> used;
  std::vector<std::string> faults;
  check_command(program, used, faults);
  for (const Row& row : kRows) {
    if (used.contains(&row)) continue;
    faults.push_back("the row '" + std::string(row.command) + "' " + std::string(row.argument) +
                     " of runtime/cli/help/argument_values.cpp belongs to no argument");
  }
  return faults;
}

}  // namespace sluice
