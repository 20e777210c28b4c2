// Writes the sends and receives between pipeline stages. Pure.
//
// A receive is posted one slot ahead, so that what comes is on its way while that slot runs. What
// is sent dies where the schedule knows it arrived if all slots take as long as their kind
// (slots_after_sends): that wait costs nothing in step, and it cannot deadlock out of step.
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

  // Before anything of slot k.
  void begin_slot(std::size_t k);
  // At an operation of the compute lane: frees what has been sent.
  void enter(Op& op);
  // The unit's input, or the gradient of its output, from another stage; op waits for it.
  [[nodiscard]] BufferId take_activation(Op& op);
  [[nodiscard]] BufferId take_gradient(Op& op);
  // What the operation emitted last has made of unit and micro-batch.
  void send_activation(int unit, int micro_batch, BufferId output);
  void send_gradient(int unit, int micro_batch, BufferId gradient);
  // Waits for everything that is still on its way.
  void finish(Op& op);

 private:
  using Key = std::tuple<OpKind, int, int>;  // of a receive: unit, micro-batch
  struct Arrival {
    OpId op = -1;
    BufferId buffer = -1;
  };
  struct Sent {
    OpId op = -1;
    BufferId buffer = -1;
    std::size_t until = 0;  // the slot before which it is over
  };

  void post(std::size_t k);
  [[nodiscard]] BufferId take(OpKind kind, Op& op);
  void send(OpKind kind, int unit, int micro_batch, BufferId buffer);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const UseOrder& order_;
  std::vector<int> after_sends_;  // by slot; empty: at the end
  std::size_t slot_ = 0;
  std::map<Key, Arrival> arrivals_;
  std::vector<Sent> sent_;
};

}  // namespace sluice
