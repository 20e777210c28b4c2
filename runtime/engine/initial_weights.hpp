// Where a model's first weights come from, when they are not drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace sluice {

// Sets elements [begin, begin + values.size()) of a parameter, row-major, and returns how many from
// the front it had; the others are drawn (model_spec.hpp, Init). A rank asks for its own share
// only. Empty: everything is drawn.
using InitialWeights = std::function<std::int64_t(const std::string& name, std::int64_t begin,
                                                  std::span<float> values)>;

}  // namespace sluice
