// A count with its noun: "1 rank", "3 ranks", "0 ranks". Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// `noun` in the singular; its plural ends in s.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);

}  // namespace sluice
