// The rules of what moves between tiers: program_check.hpp states them. Pure.
#pragma once

#include <string>

#include "runtime/program/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Empty, or the first rule broken. REQUIRES: indices are in range, waits point back.
[[nodiscard]] std::string find_tier_fault(const Program& program, const OpOrder& order);

// "operation 12 (Forward) "
[[nodiscard]] std::string name_in_fault(const Program& program, std::size_t op);

}  // namespace sluice
