// Texts of MLflow's file store: meta.yaml, names and values. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

struct MlflowRunMeta {
  std::string experiment;  // id
  std::string run;         // id: 32 hexadecimal digits
  std::string name;
  std::string user;
  std::string artifact_uri;
  std::int64_t start_ms = 0;
};

// meta.yaml of a run with status kRunning.
[[nodiscard]] std::string run_meta_text(const MlflowRunMeta& meta);
[[nodiscard]] std::string experiment_meta_text(std::string_view id, std::string_view name,
                                               const std::string& artifact_uri,
                                               std::int64_t now_ms);
// `meta` with another value of a top-level key. `value`: a YAML scalar.
[[nodiscard]] std::string with_meta_value(const std::string& meta, std::string_view key,
                                          std::string_view value);
// Value of a top-level key without quotes; empty if the key is missing.
[[nodiscard]] std::string meta_value(const std::string& meta, std::string_view key);

// "file:///a%20b" of an absolute path.
[[nodiscard]] std::string file_uri(const std::string& path);
// An experiment's id of 18 digits, a function of its name: two runs that start at once make one
// experiment.
[[nodiscard]] std::string experiment_id_of(std::string_view name);

// The step of a line of a metric; -1 if the line is not understood.
[[nodiscard]] std::int64_t step_of_line(std::string_view line);

}  // namespace sluice
