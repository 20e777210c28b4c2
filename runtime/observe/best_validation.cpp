#include "runtime/observe/best_validation.hpp"

#include <charconv>
#include <fstream>
#include <string_view>

namespace sluice {
namespace {

// The number of `key` ("\"step\":") in a line that to_json_line() wrote: no spaces, each key once.
template <typename Number>
std::optional<Number> number_of(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + key.size());
  Number value{};
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || end == line.data() + line.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ValidationLosses> validation_losses(const std::string& metrics_path) {
  std::ifstream file(metrics_path);
  std::optional<ValidationLosses> found;
  std::string line;
  while (std::getline(file, line)) {
    const auto loss = number_of<double>(line, "\"eval_loss\":");
    const auto step = number_of<std::int64_t>(line, "\"step\":");
    if (!loss || !step) continue;
    if (!found) found.emplace(ValidationLosses{.last = {}, .best = {*step, *loss}});
    found->last = {*step, *loss};
    if (*loss < found->best.loss) found->best = found->last;
    ++found->count;
  }
  return found;
}

}  // namespace sluice
