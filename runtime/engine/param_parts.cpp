#include "runtime/engine/param_parts.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace sluice {

const std::vector<std::int64_t>& whole_shape(const ParamSpec& param) {
  return param.boxes.empty() ? param.tensor.shape : param.whole_shape;
}

std::vector<ParamPart> parts_of(const ParamSpec& param, std::int64_t begin, std::int64_t end) {
  if (param.boxes.empty()) return {{whole_box(param.tensor.shape), begin, end, begin}};
  std::vector<ParamPart> parts;
  std::int64_t local = 0;  // where the box begins
  for (const ParamBox& box : param.boxes) {
    const std::int64_t elems = element_count(box.length);
    const std::int64_t from = std::max(begin, local);
    const std::int64_t to = std::min(end, local + elems);
    if (from < to) {
      parts.push_back({{box.offset, box.length}, from - local, to - local, from});
    }
    local += elems;
  }
  check(end <= local, "a rank's parameter is as large as its boxes");
  return parts;
}

std::vector<ParamRun> runs_of(const ParamSpec& param, std::int64_t begin, std::int64_t end) {
  if (param.boxes.empty()) return {{begin, begin, end - begin}};
  std::vector<ParamRun> runs;
  const StateRange whole =
      whole_range(param.tensor.name, StateKind::kMaster, TensorDType::kF32, whole_shape(param));
  for (const ParamPart& part : parts_of(param, begin, end)) {
    StateRange range = whole;
    range.box = part.box;
    range.begin = part.begin;
    range.end = part.end;
    for (const SharedRuns& shared : shared_runs(range, whole)) {
      for_each_run(shared, [&](std::int64_t from, std::int64_t to, std::int64_t elems) {
        runs.push_back({part.local + from, to, elems});
      });
    }
  }
  return runs;
}

namespace {

void append(std::string& text, const std::vector<std::int64_t>& numbers) {
  text += std::to_string(numbers.size());
  for (const std::int64_t number : numbers) text += " " + std::to_string(number);
  text += "\n";
}

std::vector<std::int64_t> read_numbers(std::istringstream& in) {
  std::size_t count = 0;
  in >> count;
  check(static_cast<bool>(in), "a part of a parameter comes as its owner wrote it");
  std::vector<std::int64_t> numbers(count);
  for (std::int64_t& number : numbers) in >> number;
  check(static_cast<bool>(in), "a part of a parameter comes as its owner wrote it");
  return numbers;
}

}  // namespace

std::string encode_part(const ParamSpec& param) {
  std::string text = std::to_string(param.boxes.size()) + "\n";
  append(text, whole_shape(param));
  for (const ParamBox& box : param.boxes) {
    append(text, box.offset);
    append(text, box.length);
  }
  return text;
}

ParamSpec decode_part(const std::string& name, const std::string& text) {
  ParamSpec part;
  part.tensor.name = name;
  if (text.empty()) return part;
  std::istringstream in(text);
  std::size_t boxes = 0;
  in >> boxes;
  part.whole_shape = read_numbers(in);
  for (std::size_t i = 0; i < boxes; ++i) {
    ParamBox box{read_numbers(in), {}};
    box.length = read_numbers(in);
    part.boxes.push_back(std::move(box));
  }
  if (boxes == 0) {
    Box whole = whole_box(part.whole_shape);
    part.boxes.push_back({std::move(whole.offset), std::move(whole.length)});
  }
  return part;
}

std::int64_t part_elems(const ParamSpec& param) {
  std::int64_t elems = 0;
  for (const ParamBox& box : param.boxes) elems += element_count(box.length);
  return elems;
}

}  // namespace sluice
