// A released version of DeepSpeed. A value type.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::migrate {

struct DeepSpeedVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const DeepSpeedVersion&) const = default;
  [[nodiscard]] std::string text() const;
};

// The version whose source the key table was written from.
inline constexpr DeepSpeedVersion kNewestDeepSpeed{0, 19, 8};

// "0.19.8", "v0.19.8", "0.15.2+cu121"; nullopt for other text.
[[nodiscard]] std::optional<DeepSpeedVersion> parse_deepspeed_version(std::string_view text);

}  // namespace sluice::migrate
