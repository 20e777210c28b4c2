#include "runtime/checkpoint/format/range_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMaxDims = 64;  // as in safetensors headers; bounds the recursion of cut()

std::int64_t product(std::span<const std::int64_t> lengths) {
  std::int64_t result = 1;
  for (const std::int64_t length : lengths) result *= length;
  return result;
}

// For each dimension: the number of elements between neighbours.
std::vector<std::int64_t> strides_of(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> strides(lengths.size(), 1);
  for (std::size_t d = lengths.size(); d-- > 1;) strides[d - 1] = strides[d] * lengths[d];
  return strides;
}

// Sets `shared` to the intersection of two boxes. Returns false if it is empty.
bool intersect(const Box& a, const Box& b, Box& shared) {
  shared.offset.resize(a.offset.size());
  shared.length.resize(a.offset.size());
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.length[d], b.offset[d] + b.length[d]);
    if (begin >= end) return false;
    shared.offset[d] = begin;
    shared.length[d] = end - begin;
  }
  return true;
}

// Cuts the interval [begin, end) over the dimensions from `dim` on into boxes. `at` holds the fixed
// values of the dimensions before.
void cut(const Box& whole, std::span<const std::int64_t> strides, std::size_t dim,
         std::int64_t begin, std::int64_t end, Box& at, std::vector<Box>& boxes) {
  if (begin == end) return;
  if (dim == whole.length.size()) {
    boxes.push_back(at);
    return;
  }
  const auto fix = [&](std::int64_t first, std::int64_t rows) {
    at.offset[dim] = whole.offset[dim] + first;
    at.length[dim] = rows;
  };
  const std::int64_t inner = strides[dim];
  std::int64_t first = begin / inner;
  const std::int64_t last = end / inner;
  const std::int64_t head = begin % inner, tail = end % inner;
  if (first == last) {
    fix(first, 1);
    cut(whole, strides, dim + 1, head, tail, at, boxes);
    return;
  }
  if (head != 0) {
    fix(first++, 1);
    cut(whole, strides, dim + 1, head, inner, at, boxes);
  }
  if (first < last) {
    fix(first, last - first);
    for (std::size_t d = dim + 1; d < whole.length.size(); ++d) {
      at.offset[d] = whole.offset[d];
      at.length[d] = whole.length[d];
    }
    boxes.push_back(at);
  }
  fix(last, 1);
  cut(whole, strides, dim + 1, 0, tail, at, boxes);
}

// The index, within the range, of the element at the box's first corner.
std::int64_t element_at(const StateRange& range, std::span<const std::int64_t> strides,
                        const Box& box) {
  std::int64_t element = -range.begin;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    element += (box.offset[d] - range.box.offset[d]) * strides[d];
  }
  return element;
}

SharedRuns runs_of(const StateRange& from, const StateRange& to, const Box& shared) {
  const std::vector<std::int64_t> from_strides = strides_of(from.box.length);
  const std::vector<std::int64_t> to_strides = strides_of(to.box.length);
  SharedRuns runs;
  runs.from = element_at(from, from_strides, shared);
  runs.to = element_at(to, to_strides, shared);
  runs.run = 1;
  // Joins the innermost dimension, and inner dimensions that are whole on both sides, to one run.
  std::size_t dims = shared.length.size();
  while (dims > 0 && runs.run == from_strides[dims - 1] && runs.run == to_strides[dims - 1]) {
    runs.run *= shared.length[--dims];
  }
  for (std::size_t d = 0; d < dims; ++d) {
    if (shared.length[d] == 1) continue;
    runs.counts.push_back(shared.length[d]);
    runs.from_strides.push_back(from_strides[d]);
    runs.to_strides.push_back(to_strides[d]);
  }
  return runs;
}

[[noreturn]] void fail(const StateRange& range, const std::string& what) {
  throw Error(std::string(name_of(range.kind)) + " of parameter " + describe(range) + ": " + what);
}

std::string list(std::span<const std::int64_t> numbers, std::string_view separator) {
  std::string text;
  for (const std::int64_t number : numbers) {
    if (!text.empty()) text += separator;
    text += std::to_string(number);
  }
  return text;
}

bool is_whole_box(const StateRange& range) { return range.box == whole_box(range.shape); }

}  // namespace

Box whole_box(std::span<const std::int64_t> shape) {
  return {std::vector<std::int64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
}

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) {
      throw Error("shape " + shape_text(shape) + " has a negative dimension or over 2^63 elements");
    }
  }
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  return text.append(list(shape, ", ")).append("]");
}

StateRange whole_range(std::string param, StateKind kind, TensorDType dtype,
                       std::vector<std::int64_t> shape) {
  StateRange range{std::move(param), kind, dtype, std::move(shape), {}, 0, 0};
  range.box = whole_box(range.shape);
  range.end = element_count(range.shape);
  return range;
}

void check_range(const StateRange& range) {
  if (range.param.empty()) throw Error("a range of a checkpoint has no parameter name");
  if (range.shape.size() > kMaxDims) fail(range, "the parameter has more than 64 dimensions");
  // 8: the largest element. Offsets are computed in bytes and must fit as well.
  if (element_count(range.shape) > INT64_MAX / 8) fail(range, "the parameter is too large");
  if (range.box.offset.size() != range.shape.size() ||
      range.box.length.size() != range.shape.size()) {
    fail(range, "the box has not as many dimensions as the shape");
  }
  for (std::size_t d = 0; d < range.shape.size(); ++d) {
    const std::int64_t offset = range.box.offset[d], length = range.box.length[d];
    if (offset < 0 || length < 1 || offset > range.shape[d] || length > range.shape[d] - offset) {
      fail(range, "the box is not within the shape [" + list(range.shape, ", ") + "]");
    }
  }
  if (range.begin < 0 || range.begin >= range.end || range.end > product(range.box.length)) {
    fail(range, "the elements are none, or not within the box");
  }
}

std::string describe(const StateRange& range) {
  std::string text = range.param;
  if (!is_whole_box(range) && range.box.offset.size() == range.box.length.size()) {
    std::string box;
    for (std::size_t d = 0; d < range.box.offset.size(); ++d) {
      if (d > 0) box += ", ";
      box += format_text("{}:{}", range.box.offset[d], range.box.offset[d] + range.box.length[d]);
    }
    text += " [" + box + ']';
  }
  return format_text("{} elements {}:{}", text, range.begin, range.end);
}

std::string tensor_name(const StateRange& range) {
  std::string text = std::string(name_of(range.kind)) + '/' + range.param;
  if (!is_whole_box(range)) {
    for (std::size_t d = 0; d < range.box.offset.size(); ++d) {
      text += d == 0 ? '@' : ',';
      text += format_text("{}+{}", range.box.offset[d], range.box.length[d]);
    }
  }
  if (range.elems() != product(range.box.length)) {
    text += format_text("#{}-{}", range.begin, range.end);
  }
  return text;
}

std::vector<Box> boxes_of(const StateRange& range) {
  const std::vector<std::int64_t> strides = strides_of(range.box.length);
  std::vector<Box> boxes;
  Box at = whole_box(range.box.length);
  cut(range.box, strides, 0, range.begin, range.end, at, boxes);
  return boxes;
}

std::int64_t SharedRuns::elems() const { return run * product(counts); }

std::vector<SharedRuns> shared_runs(const StateRange& from, const StateRange& to) {
  check(from.shape == to.shape, "ranges of one parameter");
  std::vector<SharedRuns> result;
  Box shared;
  if (!intersect(from.box, to.box, shared)) return result;
  if (from.box == to.box) {  // the common case: both ranges are parts of the same slice
    const std::int64_t begin = std::max(from.begin, to.begin), end = std::min(from.end, to.end);
    if (begin < end) {
      result.push_back({end - begin, begin - from.begin, begin - to.begin, {}, {}, {}});
    }
    return result;
  }
  const std::vector<Box> to_boxes = boxes_of(to);
  for (const Box& from_box : boxes_of(from)) {
    for (const Box& to_box : to_boxes) {
      if (intersect(from_box, to_box, shared)) result.push_back(runs_of(from, to, shared));
    }
  }
  return result;
}

namespace {

using Group = std::vector<const StateRange*>;  // ranges of one box

// Sorts the ranges by `begin`. Throws if two of them overlap.
void check_group(Group& group) {
  std::sort(group.begin(), group.end(), [](const StateRange* a, const StateRange* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  for (std::size_t i = 1; i < group.size(); ++i) {
    if (group[i]->begin < group[i - 1]->end) {
      fail(*group[i],
           format_text("overlaps elements {}:{}", group[i - 1]->begin, group[i - 1]->end));
    }
  }
}

void check_apart(const Group& a, const Group& b) {
  Box shared;
  if (!intersect(a.front()->box, b.front()->box, shared)) return;
  for (const StateRange* const one : a) {
    for (const StateRange* const other : b) {
      if (!shared_runs(*one, *other).empty()) fail(*one, "overlaps " + describe(*other));
    }
  }
}

// The first elements of a box that no range of the group contains; empty if none are missing.
StateRange first_gap(const Group& group) {
  StateRange gap = *group.front();
  gap.begin = 0;
  for (const StateRange* const range : group) {
    gap.end = range->begin;
    if (gap.begin < gap.end) return gap;
    gap.begin = range->end;
  }
  gap.end = product(gap.box.length);
  return gap;
}

}  // namespace

void check_covers(std::span<const StateRange* const> parts) {
  check(!parts.empty(), "at least one range");
  std::map<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>, Group> groups;
  std::int64_t total = 0;
  for (const StateRange* const part : parts) {
    groups[{part->box.offset, part->box.length}].push_back(part);
  }
  for (auto one = groups.begin(); one != groups.end(); ++one) {
    check_group(one->second);
    for (auto other = groups.begin(); other != one; ++other) {
      check_apart(one->second, other->second);
    }
  }
  // No ranges overlap, so the sum cannot exceed the parameter's elements.
  for (const StateRange* const part : parts) total += part->elems();
  const std::int64_t elems = element_count(parts.front()->shape);
  if (total == elems) return;
  for (const auto& [box, group] : groups) {
    const StateRange gap = first_gap(group);
    if (gap.begin < gap.end) fail(gap, "no rank holds these elements");
  }
  StateRange whole = whole_range(parts.front()->param, parts.front()->kind, parts.front()->dtype,
                                 parts.front()->shape);
  fail(whole, format_text("the ranks hold slices with {} of its {} elements", total, elems));
}

}  // namespace sluice
