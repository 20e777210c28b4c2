#include "configs/suggest.hpp"

#include <algorithm>

namespace sluice {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string_view> nearest(std::string_view name,
                                        const std::vector<std::string_view>& names) {
  constexpr std::size_t kLongestName = 64;  // a longer one is no slip of the finger
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : names) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t limit = longer <= 2   ? 0
                              : longer == 3 ? 1
                                            : std::max<std::size_t>(2, longer / 3);
    const std::size_t distance = edit_distance(name, candidate);
    if (distance > limit || distance >= longer) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace sluice
