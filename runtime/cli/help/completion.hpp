// Scripts with which a shell completes commands, options and values. Made from the tree of commands
// and the schema, so they know what this program knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sluice {

// What may stand in the place of a value.
struct Completion {
  std::vector<std::string> words{};
  bool files = false;     // also files
  bool folders = false;   // also folders; with `files`, files include folders
  bool settings = false;  // section.key=value
  bool keys = false;      // section or section.key
};

struct CompletedOption {
  std::vector<std::string> names;  // "--output", "-o"
  std::string help;
  bool takes_value = false;
  Completion value;
};

struct CompletedCommand {
  std::string path;  // "data prepare"; "" for the program
  std::string help;
  std::vector<std::string> commands{};  // below this one
  std::vector<CompletedOption> options{};
  Completion arguments{};
};

struct CompletedKey {
  std::string path;  // "zero.stage"
  std::string help;
  std::vector<std::string> values{};  // of an enumeration or a boolean
};

struct CompletionTable {
  std::vector<CompletedCommand> commands;
  std::vector<CompletedKey> keys;
};

[[nodiscard]] CompletionTable completion_table(const CLI::App& program);

// Scripts for bash 4, zsh 5 and fish 3. Each also serves a path like ./sluice.
[[nodiscard]] std::string bash_completion(const CompletionTable& table);
[[nodiscard]] std::string zsh_completion(const CompletionTable& table);
[[nodiscard]] std::string fish_completion(const CompletionTable& table);

// "a b c"
[[nodiscard]] std::string spaced(const std::vector<std::string>& words);

// The function _sluice_value of bash and zsh: `assign` sets the shell's variables to what completes
// the value of the option `prev` of the command in the variable `path`; the function fails where
// `prev` is no option with a value.
[[nodiscard]] std::string value_cases(const CompletionTable& table, const std::string& path,
                                      std::string (*assign)(const Completion&));

// `sluice completion SHELL`.
int run_completion(const std::string& shell, const CLI::App& program);

}  // namespace sluice
