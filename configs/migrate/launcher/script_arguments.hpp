// Whose arguments a launch line's script is given: Hugging Face's Trainer, Megatron-DeepSpeed, or a
// program of the user. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::migrate {

enum class ScriptKind {
  kOther,          // no argument says that the Trainer reads them
  kLikelyTrainer,  // arguments of the Trainer, and no --deepspeed FILE
  kTrainer,        // arguments of the Trainer, and --deepspeed FILE, which only the Trainer has
};

[[nodiscard]] ScriptKind script_kind(const std::vector<std::string>& arguments);

// An argument by which the script is Megatron-LM's or Megatron-DeepSpeed's:
// "--tensor-model-parallel-size"; "" where there is none.
[[nodiscard]] std::string_view megatron_argument_of(const std::vector<std::string>& arguments);

// "2 arguments of the script were not read: --lr, --epochs"; "" where there are none. Arguments
// that name the DeepSpeed configuration or the local rank do not count.
[[nodiscard]] std::string unread_arguments(const std::vector<std::string>& arguments);

// The value of `--name value` or `--name=value`; the last one counts. "" where there is none.
[[nodiscard]] std::string script_value(const std::vector<std::string>& arguments,
                                       std::string_view name);

}  // namespace sluice::migrate
