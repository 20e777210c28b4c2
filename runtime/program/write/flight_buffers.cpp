#include "runtime/program/write/flight_buffers.hpp"

#include "base/index.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

StepFlights::StepFlights(ProgramBuilder& builder, const StepShape& shape, PipeFlow& pipe)
    : builder_(builder),
      shape_(shape),
      pipe_(pipe),
      flights_(static_cast<std::size_t>(shape.micro_batches)) {
  for (FlightBuffers& flight : flights_) {
    flight.activation.assign(shape.units.size(), -1);
    flight.kept.assign(shape.units.size(), -1);
    flight.gradient.assign(shape.units.size(), -1);
    flight.deferred.assign(shape.units.size(), -1);
  }
}

BufferId StepFlights::take_input(Op& op) {
  BufferId& input = (*this)[op.micro_batch].activation[static_cast<std::size_t>(op.unit)];
  if (begins_chunk(shape_, op.unit) && input < 0) input = pipe_.take_activation(op);
  return input;
}

BufferId StepFlights::make_input_gradient(Op& op) {
  const UnitShape& unit = nth(shape_.units, op.unit);
  const BufferId gradient =
      builder_.buffer({.tag = Tag::kActivationGradients,
                       .bytes = unit.memory.input_gradient,
                       .small = small_bytes(shape_, unit.memory.input_gradient),
                       .micro_batch = begins_chunk(shape_, op.unit) ? op.micro_batch : -1});
  op.live.push_back(gradient);
  if (!passes_on(op.unit)) op.dead_after.push_back(gradient);
  return gradient;
}

bool StepFlights::passes_on(int unit) const {
  return begins_chunk(shape_, unit) ? is_pipelined(shape_) : has_backward(shape_, unit - 1);
}

void StepFlights::pass_on(const Use& use, BufferId input_gradient) {
  if (!passes_on(use.unit)) return;
  if (begins_chunk(shape_, use.unit)) {
    pipe_.send_gradient(use.unit, use.micro_batch, input_gradient);
  } else {
    (*this)[use.micro_batch].gradient[static_cast<std::size_t>(use.unit) - 1] = input_gradient;
  }
}

}  // namespace sluice
