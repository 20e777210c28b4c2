// The rules of chunks of optimizer states: updated once, with all that takes there, and taken away
// afterwards; who reads parameters waits for them, and the norm for the squares of gradients on
// NVMe. program_check.hpp states them. Of it: the ring, early updates, the image. Pure.
#pragma once

#include <map>
#include <set>
#include <vector>

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

  // In the order of the program, of every operation.
  void enter(const Op& op);
  // After the last one.
  void at_end();

  // The operation reads a group's parameters from a tier: where a program updates, they are
  // updated, and have got there.
  void read_params(int group, Tier from);
  // It makes a group's gradients this step's, or adds to them.
  void change_grads(int group);
  // It needs the squares of all gradients that are on NVMe.
  void take_squares();

 private:
  struct ChunkState {
    std::vector<OpId> arrivals;
    OpId update = -1;
    OpId summing = -1;  // its gradients' way into the ring for the norm
    OpId summed = -1;
    bool written = false;  // its states, back to the disk
    bool ahead = false;    // and into the ring again, for the next program
  };
  // Of a group's chunks, how many have been issued.
  struct GroupState {
    std::vector<int> chunks;  // all of them
    int updates = 0;
    int copies = 0;
    int param_writes = 0;
    int state_writes = 0;
    bool new_grads = false;  // this step's
  };

  static bool is_update(const Op& op) { return op.kind == OpKind::kUpdate && op.chunk >= 0; }
  [[nodiscard]] ChunkState& state(int chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }
  void touch_run(Space space, const Op& op, bool write);
  [[nodiscard]] bool states_are_params(int group) const;

  void commit();
  void move(const Op& op);
  void come_ahead(const Op& op, ChunkState& chunk);
  void come_early(const Op& op, ChunkState& chunk);
  void arrive(const Op& op, ChunkState& chunk, const GroupState& group, bool sums);
  void sum(ChunkState& chunk);
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
  bool updates_ = false;          // or should
  std::set<int> params_on_disk_;  // groups
  std::set<int> written_apart_;   // of these, whose parameters go there beside the states
  std::set<int> grads_on_disk_;   // groups
  std::map<int, GroupState> groups_;
  std::vector<ChunkState> chunks_;
};

}  // namespace sluice
