// The device buffers of a step's flights.
#pragma once

#include <vector>

#include "base/index.hpp"
#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/pipe_flow.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

// Vectors are by unit; -1: no buffer.
struct FlightBuffers {
  BufferId batch = -1;
  std::vector<BufferId> activation;  // the unit's input
  std::vector<BufferId> kept;
  std::vector<BufferId> gradient;  // of the unit's output, if this stage computes it
  std::vector<BufferId> deferred;  // held from a split backward to its kBackwardWeights
};

class StepFlights {
 public:
  StepFlights(ProgramBuilder& builder, const StepShape& shape, PipeFlow& pipe);

  [[nodiscard]] FlightBuffers& operator[](int micro_batch) { return nth(flights_, micro_batch); }

  // The input of the operation's unit. If another stage sends the input, the unit's first operation
  // waits for the message.
  [[nodiscard]] BufferId take_input(Op& op);
  // The gradient of the input of the operation's unit. The buffer dies with the operation if no
  // unit reads the gradient.
  [[nodiscard]] BufferId make_input_gradient(Op& op);
  // Gives the gradient to the unit before `use`, on this stage or on another one.
  void pass_on(const Use& use, BufferId input_gradient);

 private:
  [[nodiscard]] bool passes_on(int unit) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  PipeFlow& pipe_;
  std::vector<FlightBuffers> flights_;
};

}  // namespace sluice
