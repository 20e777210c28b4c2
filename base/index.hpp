// Elements by a signed index or an enumerator. Ranks, groups and counts are signed, containers are
// not.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace sluice {

// list[index], not checked. REQUIRES: 0 <= index < size.
template <class List, class Index>
requires std::signed_integral<Index> || std::is_enum_v<Index>
[[nodiscard]] constexpr decltype(auto) nth(List&& list, Index index) {
  return list[static_cast<std::size_t>(index)];
}

}  // namespace sluice
