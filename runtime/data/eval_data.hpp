// Token streams for evaluation, each with a name for the report.
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

// If `text` is given: each file that it names, tokenised. Else each prefix of data.valid. Else the
// validation share that data.split takes of the training data, as one stream. A stream has at least
// two tokens. Throws as TrainingData does, and ConfigError if there is no stream.
[[nodiscard]] std::vector<EvalStream> open_eval_streams(const DataOptions& options,
                                                        const std::vector<std::string>& text,
                                                        std::int64_t seq);

}  // namespace sluice
