#include "runtime/model/frozen_groups.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool matches_component(std::string_view pattern, std::string_view name) {
  const std::size_t dash = pattern.find('-');
  if (dash != std::string_view::npos) {
    const auto first = number_in(pattern.substr(0, dash));
    const auto last = number_in(pattern.substr(dash + 1));
    const auto number = number_in(name);
    if (first && last) return number && *first <= *number && *number <= *last;
  }
  return fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), FNM_NOESCAPE) == 0;
}

// Takes the text before the next point off `rest`.
std::string_view take_component(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('.'), rest.size());
  const std::string_view component = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return component;
}

bool is_frozen(std::span<const std::string> patterns, const ParamSpec& param) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return names_parameter(pattern, param.tensor.name);
  });
}

}  // namespace

bool names_parameter(std::string_view pattern, std::string_view param) {
  if (pattern.empty()) return false;
  while (!pattern.empty()) {
    if (param.empty()) return false;
    if (!matches_component(take_component(pattern), take_component(param))) return false;
  }
  return true;
}

void check_freeze(std::span<const std::string> patterns, const ModelSpec& whole) {
  std::vector<bool> used(patterns.size(), false);
  bool trains = false;
  for (const ParamGroup& group : whole.groups) {
    for (const ParamSpec& param : group.params) {
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (names_parameter(patterns[i], param.tensor.name)) used[i] = true;
      }
      trains = trains || !is_frozen(patterns, param);
    }
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) {
    const ParamGroup& block = whole.groups[whole.groups.size() / 2];
    throw ConfigError("train.freeze: " + nth(patterns, unused - used.begin()) +
                      " names no parameter of the model; names are as " +
                      whole.groups.front().params.front().tensor.name + " and " +
                      block.params.front().tensor.name +
                      ", a range of layers is first-last, and * stands for anything between two "
                      "points");
  }
  if (!trains) {
    throw ConfigError(
        "train.freeze names every parameter of the model: nothing is left to train; take a pattern "
        "out, or use `sluice eval`");
  }
}

void freeze_groups(ModelSpec& spec) {
  std::vector<ParamGroup> groups;
  std::vector<std::vector<ParamRef>> now(spec.groups.size());  // by former group and index
  for (std::size_t g = 0; g < spec.groups.size(); ++g) {
    ParamGroup trained = spec.groups[g];
    const std::vector<ParamSpec> params = std::exchange(trained.params, {});
    ParamGroup frozen = trained;
    frozen.frozen = true;
    for (const ParamSpec& param : params) {
      (is_frozen(spec.options.freeze, param) ? frozen : trained).params.push_back(param);
    }
    if (!trained.params.empty() && !frozen.params.empty()) frozen.name += ".frozen";
    const int first = static_cast<int>(groups.size());
    int of_trained = 0;
    int of_frozen = 0;
    for (const ParamSpec& param : params) {
      now[g].push_back(is_frozen(spec.options.freeze, param)
                           ? ParamRef{first + (trained.params.empty() ? 0 : 1), of_frozen++}
                           : ParamRef{first, of_trained++});
    }
    if (!trained.params.empty()) groups.push_back(std::move(trained));
    if (!frozen.params.empty()) groups.push_back(std::move(frozen));
  }
  for (UnitSpec& unit : spec.units) {
    for (ParamRef& ref : unit.params) {
      ref = nth(nth(now, ref.group), ref.index);
    }
  }
  spec.groups = std::move(groups);
}

}  // namespace sluice
