#include "configs/migrate/deepspeed/deepspeed_version.hpp"

#include <charconv>

#include "base/format.hpp"

namespace sluice::migrate {

std::string DeepSpeedVersion::text() const { return format_text("{}.{}.{}", major, minor, patch); }

std::optional<DeepSpeedVersion> parse_deepspeed_version(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  text = text.substr(0, text.find('+'));
  DeepSpeedVersion version;
  int* const parts[] = {&version.major, &version.minor, &version.patch};
  for (int* const part : parts) {
    if (part != &version.major) {
      if (!text.starts_with('.')) return std::nullopt;
      text.remove_prefix(1);
    }
    const auto end = std::from_chars(text.data(), text.data() + text.size(), *part);
    if (end.ec != std::errc() || *part < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
  }
  return text.empty() ? std::optional(version) : std::nullopt;
}

}  // namespace sluice::migrate
