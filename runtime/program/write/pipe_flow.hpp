// Writes the sends and receives between pipeline stages. Pure.
//
// A receive is posted one slot ahead, so that the message travels while that slot runs. A sent
// buffer dies before the slot that slots_after_sends() names. If all slots take the time of their
// kind, the message has arrived by then and the wait costs nothing. The wait never deadlocks.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "runtime/program/write/program_builder.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

class PipeFlow {
 public:
  // `order` outlives this.
  PipeFlow(ProgramBuilder& builder, const StepShape& shape, const UseOrder& order, bool training);

  // Called before all operations of slot k.
  void begin_slot(std::size_t k);
  // Called at a compute operation. The operation waits for due sends and frees their buffers.
  void enter(Op& op);
  // Another stage's message: the unit's input, or the gradient of its output. `op` waits for it.
  [[nodiscard]] BufferId take_activation(Op& op);
  [[nodiscard]] BufferId take_gradient(Op& op);
  // Sends a result of the operation that was emitted last.
  void send_activation(int unit, int micro_batch, BufferId output);
  void send_gradient(int unit, int micro_batch, BufferId gradient);
  // Makes `op` wait for all sends that have not completed, and free their buffers.
  void finish(Op& op);

 private:
  using Key = std::tuple<OpKind, int, int>;  // of a receive: kind, unit, micro-batch
  struct Arrival {
    OpId op = -1;
    BufferId buffer = -1;
  };
  struct Sent {
    OpId op = -1;
    BufferId buffer = -1;
    std::size_t until = 0;  // the slot before which the stage waits for the send
  };

  void post(std::size_t k);
  [[nodiscard]] BufferId take(OpKind kind, Op& op);
  void send(OpKind kind, int unit, int micro_batch, BufferId buffer);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const UseOrder& order_;
  std::vector<int> after_sends_;  // `until` by slot; empty: at the end
  std::size_t slot_ = 0;
  std::map<Key, Arrival> arrivals_;
  std::vector<Sent> sent_;
};

}  // namespace sluice
