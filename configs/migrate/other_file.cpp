#include "configs/migrate/other_file.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

// A line of TOML that starts a section of torchtitan's.
bool has_torchtitan_section(std::string_view text) {
  for (const std::string_view section :
       {"[training]", "[parallelism]", "[lr_scheduler]", "[activation_checkpoint]"}) {
    for (std::size_t at = text.find(section); at != text.npos; at = text.find(section, at + 1)) {
      if (at == 0 || text[at - 1] == '\n') return true;
    }
  }
  return false;
}

}  // namespace

std::string other_file(const std::string& text, const std::string& path) {
  if (has_torchtitan_section(text)) {
    return "this is a configuration of torchtitan: `sluice migrate --torchtitan " + path +
           "` makes a Sluice configuration of it";
  }
  const YamlDocument yaml = parse_yaml(text);  // JSON is YAML
  if (!yaml.problems.empty()) return "";
  if (const std::string recipe = recipe_complaint(yaml.root); !recipe.empty()) return recipe;
  std::vector<std::string_view> names;
  for (const YamlEntry& entry : yaml.root.entries) names.emplace_back(entry.key.text);
  if (is_own_file(names)) {
    return "this is already a Sluice configuration: `sluice train " + path + "` starts the run";
  }
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("distributed_type") || has("compute_environment")) {
    return "this is a configuration of accelerate: `sluice migrate --accelerate " + path +
           "` makes a Sluice configuration of it";
  }
  const auto has_either = [&](std::string_view name, std::string_view hyphens) {
    return has(name) || has(hyphens);
  };
  if (has_either("num_layers", "num-layers") && has_either("hidden_size", "hidden-size")) {
    return "this is a configuration of GPT-NeoX, whose model, data and schedule would be lost; "
           "write its DeepSpeed keys into a file of their own, and give the rest with --set";
  }
  const bool has_braces = text.find('{') <= text.find_first_not_of(" \t\r\n");
  if (!names.empty() && !has_braces && !read_hjson(text).problems.empty()) {
    return "this is YAML, and DeepSpeed reads JSON; name the DeepSpeed file of the job";
  }
  return "";
}

}  // namespace sluice::migrate
