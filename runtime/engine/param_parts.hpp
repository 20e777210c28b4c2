// Where the elements of a rank's parameter are in the whole one: a tensor-parallel rank's is made
// of boxes of it (ParamSpec). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

// Elements [begin, end) of a box of the whole parameter, row-major: in the rank's tensor they
// follow one another from element `local` on.
struct ParamPart {
  Box box;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t local = 0;
};

// Of the whole parameter, whoever has it.
[[nodiscard]] const std::vector<std::int64_t>& whole_shape(const ParamSpec& param);

// What elements [begin, end) of the rank's tensor are, in their order.
[[nodiscard]] std::vector<ParamPart> parts_of(const ParamSpec& param, std::int64_t begin,
                                              std::int64_t end);

// Of these, runs that are contiguous here and in the whole: of `elems` elements, from `local` on
// here and from `whole` on there.
struct ParamRun {
  std::int64_t local = 0;
  std::int64_t whole = 0;
  std::int64_t elems = 0;
};
[[nodiscard]] std::vector<ParamRun> runs_of(const ParamSpec& param, std::int64_t begin,
                                            std::int64_t end);

// A rank's part as text, for the others; "" is no part. Throws Error where `text` is none of these.
[[nodiscard]] std::string encode_part(const ParamSpec& param);
[[nodiscard]] ParamSpec decode_part(const std::string& name, const std::string& text);
// Elements of a part that was text; 0 of none.
[[nodiscard]] std::int64_t part_elems(const ParamSpec& param);

}  // namespace sluice
