// Checks the chunks of optimizer states; program_check.hpp states the rules. A chunk is updated
// once, with its states and gradients present, and written back afterwards. Readers of parameters
// wait for the updates. The norm waits for the squares of gradients on NVMe. Pure.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/image_check.hpp"
#include "runtime/program/check/ring_check.hpp"
#include "runtime/program/check/speculation_check.hpp"
#include "runtime/program/check/touches.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class ChunkCheck {
 public:
  ChunkCheck(const Program& program, const OpOrder& order, FirstFault& fault, Touches& touches);

  // Called for every operation, in the order of the program.
  void enter(const Op& op);
  // Called after the last operation.
  void at_end();

  // The operation reads a group's parameters from a tier. If the program updates, the updated
  // parameters must already be on that tier.
  void read_params(int group, Tier from);
  // The operation replaces a group's gradients by this step's gradients, or adds to the gradients.
  void change_grads(int group);
  // The operation needs the squares of all gradients on NVMe, and of those on the host that are
  // summed by chunks.
  void take_squares();

 private:
  struct ChunkState {
    std::vector<OpId> arrivals;
    OpId update = -1;
    OpId summing = -1;  // reads its gradients into the ring for the norm
    OpId summed = -1;
    bool written = false;      // its states are written back to the disk
    bool params_sent = false;  // its new parameters go to the device or the disk
    bool ahead = false;        // its states are read into the ring for the next program
  };
  // A group's chunks, and the number of operations of each kind issued on them.
  struct GroupState {
    std::vector<int> chunks;  // all of them
    int updates = 0;
    int copies = 0;
    int param_writes = 0;
    int state_writes = 0;
    bool new_grads = false;  // the group's gradients are this step's
  };

  [[nodiscard]] ChunkState& state(int chunk) { return nth(chunks_, chunk); }
  void touch_run(Space space, const Op& op, bool write);
  [[nodiscard]] bool states_are_params(int group) const;

  void commit();
  void move(const Op& op);
  void come_ahead(const Op& op, ChunkState& chunk);
  void come_early(const Op& op, ChunkState& chunk);
  void arrive(const Op& op, ChunkState& chunk, const GroupState& group, bool sums);
  void sum(const Op& op, ChunkState& chunk);
  void update(const Op& op, ChunkState& chunk, GroupState& group);
  [[nodiscard]] bool brought(const ChunkState& chunk, OpKind kind) const;
  void depart(const Op& op, ChunkState& chunk, GroupState& group);

  const Program& program_;
  FirstFault& fault_;
  Touches& touches_;
  RingCheck ring_;
  SpeculationCheck early_;
  ImageCheck image_;
  bool trains_ = false;
  bool updates_ = false;          // the program updates or should update
  std::set<int> params_on_disk_;  // groups
  std::set<int> written_apart_;   // groups whose parameters go to NVMe beside the states
  std::set<int> squares_apart_;   // groups whose squares are not summed by the norm
  std::map<int, GroupState> groups_;
  std::vector<ChunkState> chunks_;
};

}  // namespace sluice
