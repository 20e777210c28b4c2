// The rules a program must keep, checked without running it. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// Empty if the program is sound, else the first rule broken: waits point back; a buffer comes to
// life once and dies once; an asynchronous operation's slot dies only after it was waited for; no
// two living slots share bytes; every forward of a training step has its backward; nothing is left
// alive or on its way at the end.
[[nodiscard]] std::string find_fault(const Program& program);

}  // namespace sluice
