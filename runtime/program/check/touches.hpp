// Part of the checker. Two operations that touch the same thing, one of them writing, must be known
// to run one after the other. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// What operations read and write.
enum class Space {
  kSlot,          // a buffer
  kParams,        // a group's shard of parameters, on its tier; by element
  kGrads,         // a group's gradient shard (group, stream), on its tier; by element
  kInput,         // a unit's input on NVMe (unit, micro-batch)
  kStates,        // a group's states on NVMe; by element
  kSecondStates,  // their second place, of chunks that are updated early; with an image of all
  kSecondParams,
};
using Place = std::tuple<Space, int, int>;
inline constexpr std::int64_t kAllElems = std::numeric_limits<std::int64_t>::max();

// What a slot holds: an input (unit, micro-batch), a bucket, a group's shard; what goes to another
// stage or comes from one: an output (unit that made it, micro-batch), a gradient (unit whose
// input's it is; of what comes, whose output's).
enum class What { kInput, kBucket, kShard, kOutput, kGradient };
using Content = std::tuple<What, int, int>;

// Every call is about the operation that `fault` has entered, and reports faults to it.
class Touches {
 public:
  Touches(const Program& program, FirstFault& fault);

  void touch(Place place, bool write, std::int64_t begin = 0, std::int64_t end = kAllElems);
  // All of a group's gradients, wherever its streams are; those of every group.
  void touch_grads(int group, bool write);
  void touch_all_grads(bool write);
  // The parts of shards that a bucket is made of.
  void touch_bucket(int bucket, bool write);

  void fill(BufferId slot, Content content);
  void take(BufferId slot, Content content);
  // The slot dies.
  void forget(BufferId slot);

 private:
  struct Access {
    OpId op = -1;
    bool write = false;
    std::int64_t begin = 0;
    std::int64_t end = kAllElems;
  };
  struct Filled {
    Content what;
    bool taken = false;
  };

  const Program& program_;
  FirstFault& fault_;
  std::map<int, int> streams_;  // of gradients, by group
  std::map<Place, std::vector<Access>> past_;
  std::map<BufferId, Filled> content_;
};

}  // namespace sluice
