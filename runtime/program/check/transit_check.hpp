// Checks the content of slots between tiers and between pipeline stages: inputs of units, shards of
// parameters, buckets of gradients, messages. An operation must find in a slot the content that
// another operation has put in. program_check.hpp states the rules. Pure.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "runtime/program/check/chunk_check.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/touches.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class TransitCheck {
 public:
  TransitCheck(const Program& program, FirstFault& fault, Touches& touches, ChunkCheck& chunks);

  // Called for every operation without a chunk, in the order of the program. tier_check checks the
  // gradients of compute operations.
  void enter(const Op& op);
  // A buffer dies.
  void forget(BufferId b);

 private:
  void compute(const Op& op);
  void make(const Op& op, BufferId b);
  void cross(const Op& op);
  void move_bucket(const Op& op);
  void move_input(const Op& op);
  void move_shard(const Op& op);
  void write_bucket(int bucket);
  void bring_input(const Op& op);

  const Program& program_;
  FirstFault& fault_;
  Touches& touches_;
  ChunkCheck& chunks_;
  bool fed_ = false;          // the first unit gets its input from another stage
  bool many_inputs_ = false;  // inputs on NVMe have one extent per micro-batch
  std::set<int> gathered_;    // groups
  std::set<int> fetched_;     // groups whose shards are on the host or on NVMe
  std::set<int> on_disk_;     // groups whose shards are on NVMe
  std::map<Place, Content> extents_;
  std::map<std::pair<int, int>, BufferId> inputs_;    // on the device: unit, micro-batch
  std::map<std::pair<int, int>, BufferId> received_;  // gradients, from another stage
};

}  // namespace sluice
