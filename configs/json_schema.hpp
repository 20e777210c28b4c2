// The configuration's JSON Schema, for editors that complete and check YAML.
#pragma once

#include <string>

namespace sluice {

// Draft 2020-12, indented, made from configs/schema.hpp. Thread-safe.
[[nodiscard]] std::string json_schema();

}  // namespace sluice
