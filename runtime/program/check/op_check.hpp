// Checks single operations, before the program is checked as a whole. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// The fault of operation i, or "": an index out of range, a wait for a later operation, the wrong
// lane, a slot that is too small or of another kind, group or input, exchanges with other ranks
// than those of its kind.
[[nodiscard]] std::string find_op_fault(const Program& program, std::size_t i);

}  // namespace sluice
