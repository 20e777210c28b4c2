// One function for each filter: its table of options, and the filter made of them. filter.cpp lists
// them.
#pragma once

#include <memory>

#include "runtime/data/corpus/filters/filter_values.hpp"

namespace sluice {

struct FilterMaker {
  FilterKind kind;
  std::unique_ptr<Filter> (*make)(const FilterOptions& options);
};

[[nodiscard]] FilterMaker url_filter();
[[nodiscard]] FilterMaker repair_filter();
[[nodiscard]] FilterMaker nfc_filter();
[[nodiscard]] FilterMaker spaces_filter();
[[nodiscard]] FilterMaker language_filter();
[[nodiscard]] FilterMaker length_filter();
[[nodiscard]] FilterMaker javascript_filter();
[[nodiscard]] FilterMaker gopher_quality_filter();
[[nodiscard]] FilterMaker gopher_repetition_filter();
[[nodiscard]] FilterMaker c4_filter();
[[nodiscard]] FilterMaker fineweb_filter();
[[nodiscard]] FilterMaker duplicate_lines_filter();

}  // namespace sluice
