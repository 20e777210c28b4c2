// The states of a parameter that an optimizer keeps and a checkpoint holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class StateKind : std::uint8_t { kMaster, kMoment1, kMoment2 };
inline constexpr std::array kStateKinds{StateKind::kMaster, StateKind::kMoment1,
                                        StateKind::kMoment2};
// Index of a moment among an optimizer's moments.
[[nodiscard]] constexpr std::size_t moment_index(StateKind moment) {
  return static_cast<std::size_t>(moment) - 1;
}
// The name in checkpoints: "master", "moment1" or "moment2".
[[nodiscard]] constexpr std::string_view name_of(StateKind kind) {
  return kind == StateKind::kMaster    ? "master"
         : kind == StateKind::kMoment1 ? "moment1"
                                       : "moment2";
}

}  // namespace sluice
