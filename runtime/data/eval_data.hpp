// Tokens for evaluation, each stream with a name for the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

struct EvalStream {
  std::string name;
  std::shared_ptr<const TokenSource> source;
  // Of conversations: packed rows, evaluated one by one. Else null, and the source is a text.
  std::shared_ptr<const SampleSource> rows = nullptr;
  bool document_mask = false;  // of a text: its documents are told apart (data.document_mask)

  // Targets that the loss counts: learned ones of rows; of a text all tokens but the first, and
  // with document_mask but the first of each document.
  [[nodiscard]] std::int64_t counted() const;
};

enum class EvalShare { kValidation, kTest };

// If `text` is given: each file that it names, tokenised. Else each path of data.valid (data.test).
// Else the share that data.split takes of the training data, one stream for each part of a blend.
// Validation has data.valid_sets besides. Conversations are packed into rows of `seq`. A stream
// counts at least one target. Throws as TrainingData does, and ConfigError if there is no stream.
[[nodiscard]] std::vector<EvalStream> open_eval_streams(const DataOptions& options,
                                                        const std::vector<std::string>& text,
                                                        EvalShare share, std::int64_t seq);

}  // namespace sluice
