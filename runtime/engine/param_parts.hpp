// The elements of a rank's part of a parameter. The part of a tensor-parallel rank is a sequence of
// boxes of the whole parameter (ParamSpec). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

// Elements [begin, end) of a box of the whole parameter, row-major. The rank's tensor has these
// elements in a row, from element `local` on.
struct ParamPart {
  Box box;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t local = 0;
};

// Shape of the whole parameter.
[[nodiscard]] const std::vector<std::int64_t>& whole_shape(const ParamSpec& param);

// The parts of elements [begin, end) of the rank's tensor, in order.
[[nodiscard]] std::vector<ParamPart> parts_of(const ParamSpec& param, std::int64_t begin,
                                              std::int64_t end);

// A run of elements that is contiguous in the rank's tensor, from `local` on, and in the whole
// parameter, from `whole` on.
struct ParamRun {
  std::int64_t local = 0;
  std::int64_t whole = 0;
  std::int64_t elems = 0;
};
[[nodiscard]] std::vector<ParamRun> runs_of(const ParamSpec& param, std::int64_t begin,
                                            std::int64_t end);

// A rank's part as text, to send to other ranks; "" is no part. decode_part() throws Error if
// encode_part() did not write `text`.
[[nodiscard]] std::string encode_part(const ParamSpec& param);
[[nodiscard]] ParamSpec decode_part(const std::string& name, const std::string& text);
// Elements of a decoded part; 0 where there is no part.
[[nodiscard]] std::int64_t part_elems(const ParamSpec& param);

}  // namespace sluice
