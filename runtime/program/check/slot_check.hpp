// Checks buffers and gathered parameters; program_check.hpp states the rules. Pure.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class SlotCheck {
 public:
  SlotCheck(const Program& program, FirstFault& fault);

  // Called for every operation, in the order of the program. begin() handles the buffers that die
  // before the operation, come to life at it or are used by it. end(): buffers that die after it.
  void begin(const Op& op);
  void end(const Op& op);
  // Called after the last operation.
  void at_end();

  // Records a fault unless the group's newest slot with this tag is alive.
  void need(Tag tag, int group);
  [[nodiscard]] bool in_slots(Tag tag, int group) const { return slotted_.count({tag, group}) > 0; }
  // The current operation has begun to use the group's newest slot.
  [[nodiscard]] bool newest_is_used(Tag tag, int group) const;
  // Parameters are sent: no group is whole before its gather. False: a rank has all parameters of a
  // group without a gather (stage 0, a rank alone).
  [[nodiscard]] bool sends_parameters() const { return sends_parameters_; }

 private:
  void live(BufferId b);
  void take_room(BufferId b);
  void die(BufferId b);
  void use(const Op& op);
  [[nodiscard]] bool has_piece(const Op& op, int group) const;
  [[nodiscard]] bool works_on(const Op& op, BufferId b) const;
  void read_params(const Op& op);
  void need_passing(const Op& op);
  [[nodiscard]] const Buffer& buffer(BufferId b) const { return nth(program_.buffers, b); }

  enum class Life { kNotYet, kAlive, kDead };

  const Program& program_;
  FirstFault& fault_;
  std::vector<Life> life_;
  std::set<BufferId> slots_;                        // alive
  std::set<std::pair<Tag, int>> slotted_;           // tag, group pairs that live in slots
  std::vector<BufferId> passing_;                   // GroupShape::passing_gradient_bytes
  std::map<std::pair<Tag, int>, BufferId> newest_;  // slot by tag, group
  std::map<BufferId, std::vector<OpId>> users_;
  std::map<int, OpId> gathered_;  // newest gather by group, -1 before the first
  std::set<int> updated_;         // groups, in the backward
  std::set<int> rounded_;         // groups whose gradients are rounded
  bool sends_parameters_ = false;
};

}  // namespace sluice
