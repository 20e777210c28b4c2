// What the contract names and this version does not train with: refused with a sentence, never
// ignored. Whoever builds one of these deletes its row (configs/unavailable.cpp).
#pragma once

#include <string_view>
#include <vector>

#include "configs/run_config.hpp"

namespace sluice {

struct Unavailable {
  std::string_view key;                 // "zero.stage"
  bool (*asked_for)(const RunConfig&);  // whether the configuration wants it
  std::string_view available;           // what to write instead, as a clause
};

[[nodiscard]] const std::vector<Unavailable>& unavailable();

}  // namespace sluice
