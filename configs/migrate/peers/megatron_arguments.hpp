// Every argument of Megatron-LM's pretrain_gpt.py (core 0.19, 2026-08): spelling, form, default,
// choices, class and one sentence. Immutable after first use; thread-safe.
//
// The rows are text (megatron_*_rows.cpp). "= CLASS SENTENCE" holds for the rows below it. A row is
// "--name|--second-name FORM [DEFAULT] [{choice,choice}]"; semicolons separate rows of a line.
// Forms: flag (no value), switch (two names, the second one turns off), int, float and text with
// one value, with 3, any number (*) or at least one (+).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

struct MegatronArgument {
  enum class Type { kFlag, kSwitch, kInt, kFloat, kText };
  enum class Count { kNone, kOne, kThree, kAny, kSome };

  std::vector<std::string_view> names;
  Type type = Type::kText;
  Count count = Count::kOne;
  std::string_view fallback;  // as on a command line; "null": no value
  std::vector<std::string_view> choices;
  KeyClass kind = KeyClass::kMapped;
  std::string_view note;
};

extern const std::string_view kMegatronModelRows;
extern const std::string_view kMegatronTrainingRows;
extern const std::string_view kMegatronRunRows;
extern const std::string_view kMegatronOtherRows;

[[nodiscard]] const std::vector<MegatronArgument>& megatron_arguments();

// nullptr if Megatron-LM has no such argument. Prefixes are none: Megatron-LM refuses them.
[[nodiscard]] const MegatronArgument* find_megatron_argument(std::string_view name);

// All names, for `nearest`.
[[nodiscard]] const std::vector<std::string_view>& megatron_argument_names();

// A word of the command line as JSON: 2, 0.1, "text".
[[nodiscard]] std::string argument_json(const MegatronArgument& argument, std::string_view word);

// The default as JSON.
[[nodiscard]] std::string default_json(const MegatronArgument& argument);

// Python's int(text) and float(text), without its underscores.
[[nodiscard]] bool is_python_int(std::string_view text);
[[nodiscard]] bool is_python_float(std::string_view text);

}  // namespace sluice::migrate
