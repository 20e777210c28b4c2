// The table of README.md: which configurations have a report, and how each one is read.
#pragma once

#include <string>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_version.hpp"

namespace sluice::testing {

struct RealConfig {
  std::string name;        // "LLaMA-Factory__ds_z0_config.json"
  std::string repository;  // "hiyouga/LLaMA-Factory"
  std::string commit;
  std::string path;
  std::string blob;  // git's hash of the file
  std::string licence;
  int world = 0;
  std::vector<migrate::DeepSpeedVersion> versions;

  // The file of reports/ that has the report.
  [[nodiscard]] std::string report_file() const;
};

// Rows of the table in the text of README.md. Throws Error for a row that is no source.
[[nodiscard]] std::vector<RealConfig> read_sources(const std::string& markdown);

}  // namespace sluice::testing
