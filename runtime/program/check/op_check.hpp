// Checks each operation by itself. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// The fault of operation i, or "". Faults: an index out of range; a wait for a later operation; the
// wrong lane; a slot that is too small or of the wrong kind, group or input; a sum in rounded
// gradients; exchanges with the wrong ranks.
[[nodiscard]] std::string find_op_fault(const Program& program, std::size_t i);

}  // namespace sluice
