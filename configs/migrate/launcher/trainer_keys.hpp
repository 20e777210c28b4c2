// Every argument of Hugging Face's TrainingArguments: type, default, class. Transformers 5.23, and
// the arguments that 4.x had. Thread-safe.
#pragma once

#include <span>
#include <string_view>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

enum class TrainerType { kFlag, kCount, kNumber, kText, kWords, kAny };

struct TrainerKey {
  std::string_view name;
  TrainerType type;
  std::string_view fallback;  // JSON
  KeyClass kind;              // kRefused: stops unless the value is the fallback
  std::string_view note;
  std::string_view successor = {};  // the present name of a former argument
};

[[nodiscard]] std::span<const TrainerKey> trainer_keys();
// By name, or by a former name; nullptr for other names.
[[nodiscard]] const TrainerKey* find_trainer_key(std::string_view name);

}  // namespace sluice::migrate
