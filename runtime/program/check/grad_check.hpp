// Checks gradients from the backward that opens them to the norm and the updates; program_check.hpp
// states the rules. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/slot_check.hpp"
#include "runtime/program/check/unit_check.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class GradCheck {
 public:
  // Order for each operation: SlotCheck::begin, then this enter(), then UnitCheck::enter.
  GradCheck(const Program& program, FirstFault& fault, SlotCheck& slots, const UnitCheck& units);

  // Called for every operation, in the order of the program.
  void enter(const Op& op);
  // Called after the last operation.
  void at_end();

 private:
  void open(int group, bool writes);
  void write(int group);
  void reduce(const Op& op);
  void round(int group);
  void add_streams(int group);
  void gather(const Op& op);
  void finish_step(const Op& op);
  void update_in_backward(int group);
  void add_replicas(int group);
  void need_reductions(int group, const char* to);

  const Program& program_;
  FirstFault& fault_;
  SlotCheck& slots_;
  const UnitCheck& units_;
  bool on_disk_ = false;                         // shards are on NVMe; their reader adds streams
  std::map<int, std::int64_t> shard_elems_;      // by group: end of its last bucket piece
  std::map<int, std::int64_t> sent_elems_;       // by group: reduced since the group was opened
  std::map<int, std::int64_t> gathered_elems_;   // by group, if no parameters are gathered
  std::map<int, std::vector<OpId>> reductions_;  // by group
  std::set<int> unsent_;                         // groups that are being written
  std::set<int> sent_;                           // opened groups that are reduced at least in part
  std::set<int> apart_;                          // groups with more than one stream
  std::set<int> replicated_;                     // groups summed over replicas
  std::set<int> updated_;                        // groups
  bool normed_ = false;
};

}  // namespace sluice
