// One value of a configuration against its row. Pure functions; thread-safe.
#pragma once

#include <string>
#include <variant>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"
#include "configs/migrate/hjson_reader.hpp"

namespace sluice::migrate {

// "cause; remedy".
struct Refusal {
  std::string what;
};

// The value as DeepSpeed uses it: pydantic's conversions of a strict section applied, an enum's
// word in the table's spelling. REQUIRES: `key` is no section; `value` is not an "auto" that
// something fills.
[[nodiscard]] std::variant<HjsonNode, Refusal> read_value(const DeepSpeedKey& key,
                                                          const HjsonNode& value);

// A value of the table or of a command line: "5e8", "null", "\"log\"", "[0.9, 0.999]".
[[nodiscard]] HjsonNode value_of_json(std::string_view json);

// Equal numbers, words, lists.
[[nodiscard]] bool same_value(const HjsonNode& a, const HjsonNode& b);

[[nodiscard]] bool is_auto(const HjsonNode& value);

}  // namespace sluice::migrate
