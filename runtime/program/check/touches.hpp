// Checks accesses. If two operations access the same memory and one of them writes, the later one
// must know that the earlier one has completed. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// The memory that operations read and write.
enum class Space {
  kSlot,          // a buffer
  kParams,        // a group's shard of parameters, on its tier; by element
  kGrads,         // a group's gradient shard (group, stream), on its tier; by element
  kInput,         // a unit's input on NVMe (unit, micro-batch)
  kStates,        // a group's states off-device; by element
  kSecondStates,  // the second place of speculated chunks; with an image, of all chunks
  kSecondParams,
};
using Place = std::tuple<Space, int, int>;
inline constexpr std::int64_t kAllElems = std::numeric_limits<std::int64_t>::max();

// The content of a slot: an input (unit, micro-batch), a bucket or a group's shard. For messages
// between stages: an output (unit that made it, micro-batch) or a gradient. The gradient's unit is
// the unit whose input it belongs to when sent, and whose output it belongs to when received.
enum class What { kInput, kBucket, kShard, kOutput, kGradient };
using Content = std::tuple<What, int, int>;

// Every call concerns the operation that `fault` has entered, and reports faults to `fault`.
class Touches {
 public:
  Touches(const Program& program, FirstFault& fault);

  void touch(Place place, bool write, std::int64_t begin = 0, std::int64_t end = kAllElems);
  // All streams of a group's gradients; the gradients of every group.
  void touch_grads(int group, bool write);
  void touch_all_grads(bool write);
  // The parts of shards in a bucket.
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
