// The resolved config.yaml of a run as keys, values and origins, and what differs between runs.
// Reads the text that LoadedConfig::resolved_yaml writes, and knows no other YAML. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct ConfigLine {
  std::string key;     // "train.steps"
  std::string value;   // as in the file
  std::string origin;  // "tiny.yaml:3:9", "--set", "default"
};
// Lines of another form are left out.
[[nodiscard]] std::vector<ConfigLine> parse_config_lines(std::string_view text);

struct ConfigRow {
  std::string key;
  std::vector<ConfigLine> of;  // by run; without a key: the run has none
  bool differs = false;        // two runs that have a configuration have different values
};
// Every key of any run, in the order of the runs' files. Runs without lines do not count.
[[nodiscard]] std::vector<ConfigRow> compare_configs(
    const std::vector<std::vector<ConfigLine>>& runs);

}  // namespace sluice
