// The report of one configuration as lines of a golden file, and the configuration that such lines
// tell. Pure functions.
//
//     === NAME, 8 ranks, DeepSpeed 0.19.8
//       zero_optimization.reduce_bucket_size = "auto"
//           changed, zero.bucket_bytes: 33554432; DeepSpeed counts 16777216 elements, ...
//       (default) gradient_clipping = 1.0
//           mapped, train.clip: 1
//       asks for train.steps: --set train.steps=N
//       error: train_batch_size: ...
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_version.hpp"
#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::testing {

// The first line of a report.
[[nodiscard]] std::string report_title(const std::string& name, int world,
                                       const migrate::DeepSpeedVersion& version);

// The lines after the title. `problems` are the reader's; `migration` counts if there is none.
[[nodiscard]] std::string key_report(const std::vector<migrate::HjsonProblem>& problems,
                                     const migrate::Migration& migration);

// Reports of a golden file: title -> lines after the title.
[[nodiscard]] std::map<std::string, std::string> split_reports(const std::string& text);

// The configuration's keys and values as JSON, from the key lines of a report.
[[nodiscard]] std::string config_of(const std::string& report);

}  // namespace sluice::testing
