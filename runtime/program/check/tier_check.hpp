// Checks transfers between tiers; program_check.hpp states the rules. Pure.
#pragma once

#include <string>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// The first broken rule, or "". REQUIRES: indices are in range, waits point back.
[[nodiscard]] std::string find_tier_fault(const Program& program, const OpOrder& order);

}  // namespace sluice
