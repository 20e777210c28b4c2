// Ranges of global parameters, and the intersection of two ranges. Pure.
//
// A range is a box of a global tensor, and a flat interval [begin, end) of the box's elements in
// row-major order. The box is the slice of a tensor-parallel rank; the interval is a ZeRO shard of
// the slice. In the global tensor a range is no interval. It is the union of at most 2 * dims - 1
// boxes: in each dimension the tail of the first row, whole rows, and the head of the last row. So
// two ranges of any two layouts intersect in a few boxes, exactly and without a loop over elements.
//
// A local tensor that is not one box (the stacked q, k, v of a tensor-parallel rank) needs several
// ranges. A scalar has shape {} and one element.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.hpp"
#include "zero/state_kind.hpp"

namespace sluice {

struct Box {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> length;
  bool operator==(const Box&) const = default;
};

struct StateRange {
  std::string param;  // global name
  StateKind kind = StateKind::kMaster;
  TensorDType dtype = TensorDType::kF32;
  std::vector<std::int64_t> shape;  // global
  Box box;                          // within shape
  std::int64_t begin = 0, end = 0;  // elements of the box, row-major; not empty
  [[nodiscard]] std::int64_t elems() const { return end - begin; }
  [[nodiscard]] std::int64_t bytes() const { return elems() * size_of(dtype); }
};

[[nodiscard]] Box whole_box(std::span<const std::int64_t> shape);
// Number of elements. Throws Error if the number exceeds 63 bits or a dimension is negative.
[[nodiscard]] std::int64_t element_count(std::span<const std::int64_t> shape);
// "[50, 8, 3]"
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);
// The whole parameter.
[[nodiscard]] StateRange whole_range(std::string param, StateKind kind, TensorDType dtype,
                                     std::vector<std::int64_t> shape);
// Throws Error, which names parameter and range, if box, interval and shape contradict each other.
void check_range(const StateRange& range);
// "h.0.attn.weight [0:768, 256:512] elements 0:1000"; without the box if it is the whole tensor.
[[nodiscard]] std::string describe(const StateRange& range);
// The range's tensor name in a safetensors file: "master/h.0.attn.weight", followed for a part by
// "@0+768,256+512" and "#0-1000".
[[nodiscard]] std::string tensor_name(const StateRange& range);

// The boxes of the global tensor that make up the range, in the range's element order. Not empty.
[[nodiscard]] std::vector<Box> boxes_of(const StateRange& range);

// One box of the intersection of two ranges: rows of `run` elements that are contiguous in both
// ranges. Row (i0, i1, ...), 0 <= ik < counts[k], begins at element from + sum(ik *
// from_strides[k]) of the source range and at element to + sum(ik * to_strides[k]) of the
// destination range. Both rise with the row number.
struct SharedRuns {
  std::int64_t run = 0;
  std::int64_t from = 0, to = 0;
  std::vector<std::int64_t> counts, from_strides, to_strides;
  [[nodiscard]] std::int64_t elems() const;
};
// The intersection of two ranges. REQUIRES: both have the same shape.
[[nodiscard]] std::vector<SharedRuns> shared_runs(const StateRange& from, const StateRange& to);
// Calls f(from_elem, to_elem, elems) for each row in rising order.
template <class F>
void for_each_run(const SharedRuns& runs, F&& f) {
  std::vector<std::int64_t> at(runs.counts.size(), 0);
  std::int64_t from = runs.from, to = runs.to;
  for (;;) {
    f(from, to, runs.run);
    std::size_t dim = at.size();
    for (;; --dim) {
      if (dim == 0) return;
      const std::size_t d = dim - 1;
      from += runs.from_strides[d];
      to += runs.to_strides[d];
      if (++at[d] < runs.counts[d]) break;
      from -= runs.from_strides[d] * runs.counts[d];
      to -= runs.to_strides[d] * runs.counts[d];
      at[d] = 0;
    }
  }
}

// Throws Error, which names parameter and range, unless `parts` (of one parameter and kind) cover
// every element of the parameter exactly once.
void check_covers(std::span<const StateRange* const> parts);

}  // namespace sluice
