// What the engine trains on: rows of tokens and their targets, by optimizer step. The order is a
// function of (seed, step, global batch) alone, so every rank asks for its own rows and nobody
// hands them round.
//
// The tokens of a split form one stream, cut into samples of seq + 1 tokens; neighbours share the
// token at their border, which is target of the one and input of the other, and documents are
// crossed. Within an epoch each sample comes once; a batch at its end goes on with the next epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

class TokenSource;

// Checks the options and the files as TrainingData does, without reading or tokenising text and
// without building caches: for plans. Token caches that are there are opened. Logs what is known.
// Returns the smallest vocabulary the data needs, see TrainingData::vocab_size(). Megatron data
// without a tokenizer is read for its largest token only where `needs_vocab`, else that is 0.
[[nodiscard]] std::int64_t survey_data(const DataOptions& options, std::int64_t seq,
                                       bool needs_vocab);

struct SampleRows {
  std::vector<std::int64_t> tokens, targets;  // rows x seq, row-major
};

// Immutable after construction, so thread-safe.
class TrainingData {
 public:
  // Builds the token caches of data.text, or waits for the process that does, or just opens them;
  // an empty data.cache_dir is .cache/tokens of the working directory. Throws ConfigError where the
  // options do not go together, IoError where the data cannot be had or is shorter than one sample.
  TrainingData(const DataOptions& options, std::int64_t seq, std::uint64_t seed);
  ~TrainingData();

  [[nodiscard]] const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // see vocab_size()
  // The smallest vocabulary the data needs: the tokenizer's. Megatron data with data.tokenizer left
  // at `bytes` has no tokenizer (nullptr) and needs its largest token + 1.
  [[nodiscard]] std::int64_t vocab_size() const { return vocab_size_; }
  [[nodiscard]] std::int64_t train_samples() const { return train_order_.samples(); }
  [[nodiscard]] std::int64_t valid_samples() const { return valid_order_.samples(); }  // may be 0
  [[nodiscard]] std::int64_t train_tokens() const;
  [[nodiscard]] std::int64_t valid_tokens() const;
  [[nodiscard]] std::shared_ptr<const TokenSource> valid_source() const { return valid_; }
  // 32 digits that follow from the tokens themselves, not from where files lie or when they were
  // written: their number, the vocabulary, and a sample of them from all over both splits. Other
  // data has others; an edit of a few tokens in much text may go unseen. Reads some 100 KiB.
  [[nodiscard]] std::string fingerprint() const;

  // Rows [first_row, first_row + rows) of the global batch of optimizer step `step` (from 1).
  // Passes failpoint data.read.
  void train_rows(std::int64_t step, std::int64_t global_batch, std::int64_t first_row,
                  std::int64_t rows, SampleRows& out) const;
  // Likewise of evaluation batch `index` (from 0): mixed, but in the same order at every evaluation
  // and for every seed; wraps round. REQUIRES: valid_samples() > 0.
  void valid_rows(std::int64_t index, std::int64_t global_batch, std::int64_t first_row,
                  std::int64_t rows, SampleRows& out) const;

 private:
  void fill(const TokenSource& source, const SampleOrder& order, std::int64_t first_draw,
            std::int64_t rows, SampleRows& out) const;

  std::int64_t seq_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::int64_t vocab_size_ = 0;
  std::shared_ptr<const TokenSource> train_, valid_;
  SampleOrder train_order_{0, 0}, valid_order_{0, 0};
};

}  // namespace sluice
