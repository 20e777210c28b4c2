// Source of initial weights that are not drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace sluice {

// Sets elements [begin, begin + values.size()) of a parameter, row-major. Returns the number of
// elements set, from the front; the engine draws the others (model_spec.hpp, Init). A rank asks
// only for its own share. Empty: all weights are drawn.
using InitialWeights = std::function<std::int64_t(const std::string& name, std::int64_t begin,
                                                  std::span<float> values)>;

}  // namespace sluice
