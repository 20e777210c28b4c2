#include <algorithm>

#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice {
namespace {

std::string comment_of(const LoadedConfig& loaded, const Key& key) {
  const auto found = loaded.origins.find(key.path());
  if (found == loaded.origins.end()) return "default";
  std::string comment = found->second.place();
  for (const std::string& name : found->second.variables) comment += " $" + name;
  return comment;
}

}  // namespace

std::string LoadedConfig::resolved_yaml() const {
  constexpr std::size_t kCommentColumn = 32;
  std::string out;
  for (const Section& section : schema()) {
    out += std::string(section.name) + ":\n";
    for (const Key& key : section.keys) {
      std::string line = "  " + std::string(key.name) + ": " + write_value(key.rules, key.get(run));
      line.append(std::max<std::size_t>(kCommentColumn, line.size() + 2) - line.size(), ' ');
      out += line + "# " + comment_of(*this, key) + "\n";
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> LoadedConfig::resolved_values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      values.emplace_back(key.path(), write_value(key.rules, key.get(run)));
    }
  }
  return values;
}

}  // namespace sluice
