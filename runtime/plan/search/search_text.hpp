// Texts of a search and of the fit table, at most 80 columns. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/search/fit_table.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {

[[nodiscard]] std::string suggestions_text(const SearchResult& result);
[[nodiscard]] std::string compare_text(const std::vector<FitRow>& rows);

}  // namespace sluice
