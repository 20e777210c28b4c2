#include "runtime/program/check/touches.hpp"

#include <algorithm>
#include <string>

#include "base/index.hpp"

namespace sluice {

Touches::Touches(const Program& program, FirstFault& fault) : program_(program), fault_(fault) {
  for (const Chunk& chunk : program.chunks) streams_.emplace(chunk.group, 1);
  for (const auto& bucket : program.buckets) {
    for (const BucketPiece& piece : bucket) {
      int& streams = streams_.emplace(piece.group, 1).first->second;
      streams = std::max(streams, piece.stream + 1);
    }
  }
}

void Touches::touch(Place place, bool write, std::int64_t begin, std::int64_t end) {
  const OpId now = fault_.now();
  std::vector<Access>& past = past_[place];
  for (const Access& a : past) {
    const bool meet = a.begin < end && begin < a.end && (write || a.write);
    if (meet && a.op != now && !fault_.over(a.op)) {
      fault_.fail(std::string(write ? "writes" : "reads") + " what operation " +
                  std::to_string(a.op) + " may still " + (a.write ? "write" : "read"));
    }
  }
  // An operation that knows this one has completed also knows the completions that this one knew.
  std::erase_if(past, [&](const Access& a) {
    return begin <= a.begin && a.end <= end && (write || !a.write) &&
           (a.op == now || fault_.over(a.op));
  });
  past.push_back({now, write, begin, end});
}

void Touches::touch_grads(int group, bool write) {
  const auto known = streams_.find(group);
  const int streams = known == streams_.end() ? 1 : known->second;
  for (int s = 0; s < streams; ++s) touch({Space::kGrads, group, s}, write);
}

void Touches::touch_all_grads(bool write) {
  for (const auto& [group, streams] : streams_) touch_grads(group, write);
}

void Touches::touch_bucket(int bucket, bool write) {
  for (const BucketPiece& piece : nth(program_.buckets, bucket)) {
    touch({Space::kGrads, piece.group, piece.stream}, write, piece.begin,
          piece.begin + piece.elems);
  }
}

void Touches::fill(BufferId slot, Content content) {
  if (slot < 0) return fault_.fail("has no slot for its result");
  touch({Space::kSlot, slot, 0}, true);
  content_[slot] = {content, false};
}

void Touches::take(BufferId slot, Content content) {
  if (slot < 0) return fault_.fail("does not say what it takes");
  touch({Space::kSlot, slot, 0}, false);
  const auto there = content_.find(slot);
  if (there == content_.end() || there->second.what != content) {
    return fault_.fail("reads a slot with other contents than it expects");
  }
  there->second.taken = true;
}

void Touches::forget(BufferId slot) {
  touch({Space::kSlot, slot, 0}, true);
  const auto there = content_.find(slot);
  if (there == content_.end()) return;
  const bool passes_on = std::get<What>(there->second.what) != What::kInput;
  if (passes_on && !there->second.taken) fault_.fail("frees a slot whose contents were never read");
  content_.erase(there);
}

}  // namespace sluice
