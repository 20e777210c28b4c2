// What a rank holds as long as it trains, by tier: a table. Pure.
#pragma once

#include <span>
#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// Bytes on NVMe are whole pages, one extent an array and group, and one more for the second places
// of its chunks. On the host they are as asked for. Without chunks: no second places.
[[nodiscard]] std::vector<Persistent> list_persistent(const StepShape& shape,
                                                      std::span<const Chunk> chunks = {});
// Of one record of the image of these chunks; 0 where none has a second place.
[[nodiscard]] std::int64_t image_bytes(const StepShape& shape, std::span<const Chunk> chunks);

}  // namespace sluice
