// Elements by a signed index. Ranks, groups and counts are signed here, containers are not.
#pragma once

#include <concepts>
#include <cstddef>

namespace sluice {

// list[index], not checked. REQUIRES: 0 <= index < size.
template <class List, std::signed_integral Index>
[[nodiscard]] constexpr decltype(auto) nth(List& list, Index index) {
  return list[static_cast<std::size_t>(index)];
}

}  // namespace sluice
