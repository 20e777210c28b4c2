#include "runtime/data/corpus/unit_plan.hpp"

#include <algorithm>

namespace sluice {

std::vector<CorpusUnit> plan_units(std::span<const CorpusFile> files, std::int64_t unit_bytes) {
  std::vector<CorpusUnit> units(1);
  for (std::size_t f = 0; f < files.size(); ++f) {
    const bool cut = files[f].lines && !files[f].packed;
    const std::int64_t size = files[f].file.size_bytes;
    for (std::int64_t begin = 0; begin < size;) {
      if (units.back().bytes >= unit_bytes) units.emplace_back();
      const std::int64_t room = unit_bytes - units.back().bytes;
      const std::int64_t end = cut ? std::min(size, begin + room) : size;
      units.back().parts.push_back({f, begin, end});
      units.back().bytes += end - begin;
      begin = end;
    }
  }
  if (units.back().parts.empty()) units.pop_back();
  return units;
}

}  // namespace sluice
