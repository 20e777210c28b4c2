#include "runtime/program/check/program_check.hpp"

#include "base/index.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/grad_check.hpp"
#include "runtime/program/check/op_check.hpp"
#include "runtime/program/check/op_order.hpp"
#include "runtime/program/check/slot_check.hpp"
#include "runtime/program/check/tier_check.hpp"
#include "runtime/program/check/unit_check.hpp"

namespace sluice {
namespace {

std::string find_step_fault(const Program& program, const OpOrder& order) {
  FirstFault fault(program, order);
  SlotCheck slots(program, fault);
  UnitCheck units(program, fault);
  GradCheck grads(program, fault, slots, units);
  const auto count = static_cast<OpId>(program.ops.size());
  for (OpId i = 0; i < count && !fault.found(); ++i) {
    const Op& op = nth(program.ops, i);
    fault.enter(i);
    slots.begin(op);
    grads.enter(op);
    units.enter(op);
    slots.end(op);
  }
  slots.at_end();
  grads.at_end();
  // Transfers of states need no wait: the executor waits for all operations at the end.
  for (OpId i = 0; i < count && !fault.found(); ++i) {
    const Op& op = nth(program.ops, i);
    if (op.kind == OpKind::kWriteStates || op.ahead || op.speculative) continue;
    fault.enter(i);
    if (!order.over_at_end(i)) fault.fail("is never waited for");
  }
  units.at_end();
  return fault.text();
}

}  // namespace

std::string find_fault(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const std::string fault = find_op_fault(program, i);
    if (!fault.empty()) return name_in_fault(program, static_cast<OpId>(i)) + fault;
  }
  const OpOrder order(program);
  const std::string fault = find_step_fault(program, order);
  return fault.empty() ? find_tier_fault(program, order) : fault;
}

}  // namespace sluice
