// Output of `generate --json` and `eval --json`. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/run/generator.hpp"

namespace sluice {

struct GenerateRecord {
  std::string prompt;
  std::size_t prompt_tokens = 0;
  std::string text;  // what the model added
  Generated made;
  SamplingOptions sampling;
  std::string checkpoint;
  std::int64_t step = -1;  // of our own checkpoint
};
[[nodiscard]] std::string generate_json(const GenerateRecord& record);

struct EvalRecord {
  struct Row {
    std::string name;
    std::int64_t tokens = 0;  // predicted
    double loss = 0;          // mean over them
  };
  std::vector<Row> files;
  Row all;
  std::int64_t seq = 0;
  std::int64_t stride = 0;
  std::string checkpoint;
  std::int64_t step = -1;
};
[[nodiscard]] std::string eval_json(const EvalRecord& record);

}  // namespace sluice
