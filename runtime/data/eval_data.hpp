// What a model is evaluated on: streams of tokens, each with a name for the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

struct EvalStream {
  std::string name;
  std::shared_ptr<const TokenSource> source;
};

// `text` given: each file that it means, tokenised; else each prefix of data.valid; else the share
// of validation that data.split takes of the training data, as one stream. A stream is at least two
// tokens long. Throws as TrainingData does, and ConfigError where there is nothing.
[[nodiscard]] std::vector<EvalStream> open_eval_streams(const DataOptions& options,
                                                        const std::vector<std::string>& text,
                                                        std::int64_t seq);

}  // namespace sluice
