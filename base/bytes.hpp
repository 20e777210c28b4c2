// Byte counts and element counts as text: "24GiB", "512MiB", "1e9", "50k", and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

// "24GiB", "1.5 GB", "512MiB", "4096", "1e9". Binary units (KiB MiB GiB TiB) are powers of 1024,
// decimal ones (kB MB GB TB) of 1000; no unit is bytes. nullopt if it is none of these, negative,
// or does not come to a whole number of bytes below 2^63.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);

// "50k" = 50 000, "1.5M", "2B" (1e9), "1e9", "1_000", "12". nullopt as above.
[[nodiscard]] std::optional<std::int64_t> parse_count(std::string_view text);

// 1.30 GiB, 412 MiB, 96 B: three significant digits; four from 1000 to 1023 of a unit.
[[nodiscard]] std::string format_bytes(std::int64_t bytes);
// 19.9k, 3.41M, 812: three significant digits.
[[nodiscard]] std::string format_count(double count);
// 0:13:02
[[nodiscard]] std::string format_duration(double seconds);

// The smallest multiple of `step` that is >= value. REQUIRES: value >= 0, step > 0.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace sluice
