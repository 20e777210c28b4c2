// Arguments of a launcher, as Python's argparse reads them: --name value, --name=value, -n value,
// flags, and abbreviations of names where the launcher takes them. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

enum class ArgumentType { kFlag, kText, kInt, kFloat };

struct ArgumentRule {
  std::string_view name;   // "--num_gpus"
  std::string_view alias;  // "-H", or ""
  ArgumentType type = ArgumentType::kText;
  KeyClass kind = KeyClass::kMapped;
  std::string_view note;
  std::string_view choices;  // "tune run"; "": any
};

struct Argument {
  const ArgumentRule* rule = nullptr;
  std::string value;  // "true" of a flag
  int number = 0;     // of the argument in the line, from 1; the launcher is 0
};

struct ArgumentError {
  std::string name;  // "--num_gpus"
  int number = 0;
  std::string what;  // "cause; remedy"
};

struct ArgumentReading {
  std::vector<Argument> arguments;  // the last one of a name counts
  std::size_t script = 0;           // index of the first word that belongs to no argument
  std::vector<ArgumentError> errors;

  [[nodiscard]] const Argument* find(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name, std::string_view fallback) const;
  [[nodiscard]] std::int64_t count(std::string_view name, std::int64_t fallback) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
};

struct ArgumentStyle {
  std::string_view program;    // for messages: "DeepSpeed's launcher"
  bool abbreviations = false;  // --num_g for --num_gpus
  bool hyphens = false;        // --nproc-per-node for --nproc_per_node
};

// Reads from words[first] to the first word that is no argument: the script. Collects every
// mistake, with the nearest name of an unknown argument.
[[nodiscard]] ArgumentReading read_arguments(const std::vector<std::string>& words,
                                             std::size_t first, std::span<const ArgumentRule> rules,
                                             const ArgumentStyle& style);

}  // namespace sluice::migrate
