#include "runtime/program/write/step_states.hpp"

#include "runtime/program/write/chunk_ring.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

StateTable step_states(const StepShape& shape, std::span<const Chunk> chunks, bool adds_on_host) {
  HeldArrays held{.gradient_streams = {},
                  .second_places = second_places(chunks),
                  .constant_bytes = shape.constant_bytes,
                  .library_bytes = shape.library_bytes + shape.passing_gap_bytes,
                  .comm_staging_bytes = shape.comm_staging_bytes,
                  .replica_staging_bytes = shape.replica_staging_bytes,
                  .ring_bytes = chunk_layout(shape).bytes * shape.placement.chunk_slots,
                  .bounce_bytes = adds_on_host ? shape.bounce_bytes : 0,
                  .inputs = {},
                  .store = shape.store};
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    held.gradient_streams.push_back(gradient_streams(shape, g));
  }
  if (shape.placement.activations == Tier::kNvme) {
    for (int u = 0; u < static_cast<int>(shape.units.size()); ++u) {
      held.inputs.push_back(
          {.unit = u, .flights = input_extents(shape), .bytes = leaving_bytes(shape, u)});
    }
  }
  return write_state_table(shape, held);
}

std::int64_t image_bytes(const StepShape& shape, std::span<const Chunk> chunks) {
  return image_record_bytes(shape, second_places(chunks));
}

}  // namespace sluice
