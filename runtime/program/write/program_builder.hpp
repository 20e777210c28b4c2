// A program under construction. The parts of a writer add their operations to it. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "base/index.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class ProgramBuilder {
 public:
  OpId emit(Op op) {
    program_.ops.push_back(std::move(op));
    return static_cast<OpId>(program_.ops.size()) - 1;
  }
  BufferId buffer(Tag tag, std::int64_t bytes, bool in_arena = false, int group = -1) {
    return buffer(Buffer{.tag = tag, .bytes = bytes, .in_arena = in_arena, .group = group});
  }
  BufferId buffer(Buffer buffer) {
    program_.buffers.push_back(buffer);
    return static_cast<BufferId>(program_.buffers.size()) - 1;
  }
  int bucket(std::vector<BucketPiece> pieces) {
    program_.buckets.push_back(std::move(pieces));
    return static_cast<int>(program_.buckets.size()) - 1;
  }

  // The index of the list, for Op::exchanges. Equal lists share an index; empty: -1.
  int exchanges(ExchangeList list) {
    if (list.empty()) return -1;
    std::vector<ExchangeList>& all = program_.exchanges;
    const auto known = std::find(all.begin(), all.end(), list);
    if (known != all.end()) return static_cast<int>(known - all.begin());
    all.push_back(std::move(list));
    return static_cast<int>(all.size()) - 1;
  }

  [[nodiscard]] const Op& op(OpId id) const { return nth(program_.ops, id); }
  [[nodiscard]] const std::vector<BucketPiece>& bucket(int id) const {
    return nth(program_.buckets, id);
  }
  [[nodiscard]] OpId next_op() const { return static_cast<OpId>(program_.ops.size()); }
  [[nodiscard]] Program& program() { return program_; }

 private:
  Program program_;
};

// One run of one unit.
struct Use {
  OpKind kind = OpKind::kForward;
  int unit = 0;
  int micro_batch = 0;
  int visit = 0;       // consecutive uses of one unit in one direction share a visit
  bool split = false;  // backward of the input only; a kBackwardWeights follows
  bool flushes =
      false;  // its gradients are sent after it: no later use puts gradients in the same bucket
};

}  // namespace sluice
