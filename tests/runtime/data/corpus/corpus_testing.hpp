// Helpers of this folder's tests: packed files, output folders as text, runs that are killed.
#pragma once

#include <zstd.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/failpoint.hpp"
#include "runtime/data/corpus/corpus_files.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {

inline std::string pack_zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

// Contents of all files below a folder by relative path, without the log, its lock and temporary
// files.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = std::filesystem::relative(entry.path(), folder).string();
    if (!entry.is_regular_file() || name.starts_with("work.")) continue;
    files[name] = read_file(entry.path().string());
  }
  return files;
}

// All parts of one output in order.
inline std::string output_of(const std::string& folder, const std::string& output) {
  std::string all;
  for (const auto& [name, content] : files_below(folder)) {
    if (name.starts_with(output + "/")) all += content;
  }
  return all;
}

// Runs `work` again and again until a run passes. The first run fails at the first pass of the
// failpoint, each later run one pass later. Returns the number of failures.
template <class Work>
int run_with_failures(const std::string& failpoint, const Work& work) {
  for (int failures = 0;; ++failures) {
    arm_failpoints(failpoint + "@" + std::to_string(failures + 1) + ":error");
    try {
      work();
      arm_failpoints("");
      return failures;
    } catch (const Error& error) {
      if (std::string(error.what()) != "failpoint " + failpoint || failures > 1000) throw;
    }
  }
}

}  // namespace sluice::testing
