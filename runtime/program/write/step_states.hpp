// The state table (zero/state_table.hpp) of a step's shape and chunks. Pure.
#pragma once

#include <span>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// Without chunks, the table has no second places. `adds_on_host`: the program adds reduced
// gradients on the host (kStoreGrads with `accumulate`).
[[nodiscard]] StateTable step_states(const StepShape& shape, std::span<const Chunk> chunks = {},
                                     bool adds_on_host = false);

// Bytes of one record of the chunks' image; 0 if no chunk has a second place.
[[nodiscard]] std::int64_t image_bytes(const StepShape& shape, std::span<const Chunk> chunks);

}  // namespace sluice
