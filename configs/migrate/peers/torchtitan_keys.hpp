// Every key of torchtitan's TOML files (the last version that reads TOML, 2026-02): type, default,
// class and one sentence. Immutable; thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

struct TorchtitanKey {
  enum class Type { kBool, kInt, kFloat, kText, kList };

  std::string_view path;
  Type type = Type::kText;
  std::string_view fallback;  // as JSON
  KeyClass kind = KeyClass::kMapped;
  std::string_view note;
  std::string_view choices{};  // "a,b"; empty: any value
};

[[nodiscard]] const std::vector<TorchtitanKey>& torchtitan_keys();

}  // namespace sluice::migrate
