// A run's folder for a test.
#pragma once

#include <fstream>
#include <string>

#include "runtime/report/run_reader.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {

inline std::string step_text(std::int64_t step, double loss, const std::string& more = "") {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) +
         ",\"grad_norm\":1.5,\"lr\":0.001,\"skipped\":false,\"tokens\":" +
         std::to_string(100 * step) + ",\"step_ms\":250,\"memory\":{\"device_peak\":4096}," +
         "\"timers_ms\":{\"forward\":12.5,\"comm\":3}" + more + "}\n";
}

class RunFolder {
 public:
  [[nodiscard]] std::string path() const { return folder_.path().string(); }
  [[nodiscard]] std::string file(const char* name) const { return folder_.file(name); }
  void append(const char* name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary | std::ios::app) << text;
  }
  // As a resumed run replaces metrics.jsonl: another file under the same name.
  void replace(const char* name, const std::string& text) const {
    std::ofstream(file("new"), std::ios::binary) << text;
    std::filesystem::rename(file("new"), file(name));
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace sluice::testing
