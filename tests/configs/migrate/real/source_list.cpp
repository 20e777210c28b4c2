#include "tests/configs/migrate/real/source_list.hpp"

#include <sstream>

#include "base/error.hpp"

namespace sluice::testing {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" `");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" `") + 1 - first);
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, mark);) parts.push_back(trimmed(part));
  return parts;
}

RealConfig source_of(const std::string& line) {
  const std::vector<std::string> cells = split(line, '|');
  if (cells.size() != 9) throw Error("README.md: a row needs 8 cells: " + line);
  RealConfig source{.name = cells[1],
                    .repository = cells[2],
                    .commit = cells[3],
                    .path = cells[4],
                    .blob = cells[5],
                    .licence = cells[6],
                    .world = std::stoi(cells[7]),
                    .versions = {}};
  for (const std::string& text : split(cells[8], ',')) {
    const auto version = migrate::parse_deepspeed_version(text);
    if (!version) throw Error("README.md: no version of DeepSpeed: " + line);
    source.versions.push_back(*version);
  }
  return source;
}

}  // namespace

std::string RealConfig::report_file() const { return name.substr(0, name.find("__")) + ".txt"; }

std::vector<RealConfig> read_sources(const std::string& markdown) {
  std::vector<RealConfig> sources;
  std::istringstream in(markdown);
  for (std::string line; std::getline(in, line);) {
    if (line.find(".json` |") != std::string::npos) sources.push_back(source_of(line));
  }
  return sources;
}

}  // namespace sluice::testing
