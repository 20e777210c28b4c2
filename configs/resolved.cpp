#include <algorithm>

#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice {
namespace {

constexpr std::size_t kCommentColumn = 32;

std::string comment_of(const LoadedConfig& loaded, const Key& key) {
  const auto found = loaded.origins.find(key.path());
  if (found == loaded.origins.end()) return "default";
  std::string comment = found->second.place();
  for (const std::string& name : found->second.variables) comment += " $" + name;
  return comment;
}

}  // namespace

std::string LoadedConfig::resolved_yaml() const {
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

bool is_resolved_yaml(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const bool section = line.ends_with(':') && line.find_first_of(" #") == line.npos;
    const bool key = line.find_first_not_of(' ') == 2 && line[2] != '#' &&
                     line.find("  # ", kCommentColumn - 2) != line.npos;
    if (!section && !key) return false;
  }
  return true;
}

}  // namespace sluice
