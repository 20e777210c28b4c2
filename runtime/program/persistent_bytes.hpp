// What a rank holds as long as it trains, by tier: a table. Pure.
#pragma once

#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// Bytes on NVMe are whole pages, one extent an array and group. On the host they are as asked for.
[[nodiscard]] std::vector<Persistent> list_persistent(const StepShape& shape);

}  // namespace sluice
