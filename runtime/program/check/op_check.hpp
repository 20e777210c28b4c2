// What has to hold of an operation by itself, before a program can be looked at as a whole. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// Empty, or what is wrong with operation i: an index out of range, a wait for what comes later, the
// wrong lane, a slot of another kind, group or input than it works on, or one that is too small.
[[nodiscard]] std::string find_op_fault(const Program& program, std::size_t i);

}  // namespace sluice
