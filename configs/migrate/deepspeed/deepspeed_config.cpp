#include "configs/migrate/deepspeed/deepspeed_config.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"
#include "configs/migrate/deepspeed/deepspeed_walk.hpp"
#include "configs/migrate/template_check.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

const HjsonNode& value_of_kind(const DeepSpeedConfig& config, std::string_view path, Kind kind) {
  const HjsonNode& value = config.value(path);
  check(value.kind == kind, format_text("{} is no {}", path, kind_name(kind)));
  return value;
}

bool is_number_or_flag(KeyType type) {
  return type == KeyType::kBool || type == KeyType::kInt || type == KeyType::kFloat ||
         type == KeyType::kIntOrAuto;
}

// Refused placeholders of a template become one mistake, at the first one.
void merge_placeholders(DeepSpeedConfig& config) {
  Mistake* first = nullptr;
  std::string word;
  std::size_t others = 0;
  for (Finding& finding : config.findings) {
    if (finding.key == nullptr || !is_number_or_flag(finding.key->type)) continue;
    const HjsonNode value = value_of_json(finding.value);
    const auto placeholder =
        value.kind == Kind::kText ? placeholder_word(value.text) : std::nullopt;
    if (!placeholder) continue;
    const auto mistake =
        std::find_if(config.mistakes.begin(), config.mistakes.end(), [&finding](const Mistake& m) {
          return m.path == finding.path && m.what.starts_with("found ");
        });
    if (mistake == config.mistakes.end()) continue;
    finding.note = "a placeholder of a template";
    finding.is_default = true;
    if (first == nullptr) {
      first = &*mistake;
      word = *placeholder;
    } else {
      mistake->what.clear();
      ++others;
    }
  }
  if (first == nullptr) return;
  first->what = "the file is a template: " + in_quotes(word) + " is a placeholder";
  if (others > 0) first->what += format_text(", with {} more", others);
  first->what += "; fill the template in first, then migrate the result";
  std::erase_if(config.mistakes, [](const Mistake& mistake) { return mistake.what.empty(); });
}

}  // namespace

std::string Mistake::text(std::string_view file) const {
  std::string line(file);
  if (place.line > 0) line += format_text(":{}:{}", place.line, place.column);
  line += ": ";
  if (!path.empty()) line += path + ": ";
  return line + what;
}

const HjsonNode& DeepSpeedConfig::value(std::string_view path) const {
  const auto found = values.find(path);
  check(found != values.end(), format_text("the configuration has no {}", path));
  return found->second.value;
}

bool DeepSpeedConfig::is_written(std::string_view path) const {
  const auto found = values.find(path);
  return found != values.end() && found->second.is_written;
}

bool DeepSpeedConfig::is_null(std::string_view path) const {
  return value(path).kind == Kind::kNull;
}

bool DeepSpeedConfig::flag(std::string_view path) const {
  return value_of_kind(*this, path, Kind::kBool).boolean;
}

std::int64_t DeepSpeedConfig::count(std::string_view path) const {
  const HjsonNode& value = value_of_kind(*this, path, Kind::kNumber);
  check(value.integer.has_value(), format_text("{} is no whole number", path));
  return value.integer.value_or(0);
}

double DeepSpeedConfig::number(std::string_view path) const {
  return value_of_kind(*this, path, Kind::kNumber).number;
}

const std::string& DeepSpeedConfig::text(std::string_view path) const {
  return value_of_kind(*this, path, Kind::kText).text;
}

std::vector<double> DeepSpeedConfig::numbers(std::string_view path) const {
  std::vector<double> numbers;
  for (const HjsonNode& item : value_of_kind(*this, path, Kind::kList).items) {
    check(item.kind == Kind::kNumber, format_text("{} is no list of numbers", path));
    numbers.push_back(item.number);
  }
  return numbers;
}

std::string DeepSpeedConfig::error_text(std::string_view file) const {
  constexpr std::size_t kMostLines = 100;
  std::string text;
  for (std::size_t i = 0; i < mistakes.size() && i < kMostLines; ++i) {
    text += (i == 0 ? "" : "\n") + mistakes[i].text(file);
  }
  if (mistakes.size() > kMostLines) {
    text += format_text("\nand {} more mistakes", mistakes.size() - kMostLines);
  }
  return text;
}

DeepSpeedConfig parse_deepspeed(const HjsonNode& root, const ParseOptions& options) {
  DeepSpeedConfig config;
  config.version = options.version;
  DeepSpeedWalk(config, options).read(root);
  apply_deepspeed_rules(root, options, config);
  merge_placeholders(config);
  std::stable_sort(
      config.mistakes.begin(), config.mistakes.end(), [](const Mistake& a, const Mistake& b) {
        return std::tie(a.place.line, a.place.column) < std::tie(b.place.line, b.place.column);
      });
  return config;
}

}  // namespace sluice::migrate
