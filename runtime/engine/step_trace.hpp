// The last step as a trace for chrome://tracing and Perfetto.
#pragma once

#include <string>

#include "runtime/engine/engine.hpp"

namespace sluice {

// One slice per operation on its lane, and one where the executing thread waited. Throws IoError.
void write_step_trace(const std::string& path, const Engine& engine);

}  // namespace sluice
