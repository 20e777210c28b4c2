// Training rows: tokens and targets by optimizer step. The order is a function of (seed, step,
// global batch) alone, so each rank computes its own rows and ranks exchange none.
//
// The tokens of a split form one stream, cut into samples of seq + 1 tokens. Neighbouring samples
// share their border token: target of one, input of the other. Samples cross documents. Within an
// epoch each sample comes once; a batch at the end of an epoch continues with the next epoch. The
// parts of a blend have a stream and epochs each (blend_plan.hpp). Conversations (data.sft) are
// packed into rows instead (chat/packed_conversations.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/sample_mix.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

// Checks options and files as TrainingData does, for plans: reads and tokenises no text, builds no
// cache, opens existing caches, logs its findings. Returns the smallest vocabulary for the data
// (TrainingData::vocab_size()). Megatron data without a tokenizer is scanned for its largest token
// only if `needs_vocab`; else the result is 0. `on_train` is told of the training samples, if all
// caches exist.
[[nodiscard]] std::int64_t survey_data(
    const DataOptions& options, std::int64_t seq, bool needs_vocab,
    const std::function<void(const SampleMix& train)>& on_train = {});

// Logs how many epochs the run makes; of a blend, over its parts.
void log_epochs(const SampleMix& train, std::int64_t steps, std::int64_t global_batch);

struct SampleRows {
  std::vector<std::int64_t> tokens, targets;  // rows x seq, row-major
  // Of each row: 0, the end of each document, seq. Positions start anew in each document, and
  // attention stays inside a document. Unused places form a document without targets. Empty: each
  // row is one document.
  std::vector<std::vector<std::int32_t>> cu_seqlens;
  // Targets that count in the loss (not kIgnoreTarget) of the whole global batch, at least 1: the
  // batch's loss is the sum over its targets divided by this number. 0: every target counts.
  std::int64_t learned_targets = 0;
};

// Thread-safe after construction. Each batch is the same however often it is read.
class TrainingData {
 public:
  // Builds the token caches of text, waits for the process that builds them, or opens them. An
  // empty data.cache_dir means .cache/tokens of the working directory. Throws ConfigError if
  // options contradict each other, IoError if the data cannot be read or is shorter than one
  // sample.
  TrainingData(const DataOptions& options, std::int64_t seq, std::uint64_t seed,
               const OnTokenizer& on_tokenizer = {});
  ~TrainingData();

  [[nodiscard]] const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // see vocab_size()
  // The smallest vocabulary for the data: the tokenizer's. Megatron data with data.tokenizer left
  // at `bytes` has no tokenizer (nullptr); then the largest token + 1.
  [[nodiscard]] std::int64_t vocab_size() const { return vocab_size_; }
  [[nodiscard]] std::int64_t train_samples() const { return train_.samples(); }
  [[nodiscard]] std::int64_t valid_samples() const { return valid_.samples(); }  // may be 0
  [[nodiscard]] std::int64_t train_tokens() const { return train_.tokens(); }
  [[nodiscard]] std::int64_t valid_tokens() const { return valid_.tokens(); }
  [[nodiscard]] std::int64_t test_tokens() const { return test_tokens_; }
  // A part for each of data.blend, else one.
  [[nodiscard]] const SampleMix& train() const { return train_; }
  // Names of data.valid_sets.
  [[nodiscard]] const std::vector<std::string>& valid_sets() const { return set_names_; }
  // 32 digits that depend on the tokens, not on paths or times: their number, the vocabulary, and a
  // sample of tokens from both splits. Other data has other digits; a small edit of much text may
  // go unnoticed. Reads about 100 KiB.
  [[nodiscard]] std::string fingerprint() const;

  // Rows [first_row, first_row + rows) of the global batch of optimizer step `step` (from 1).
  // Passes failpoint data.read.
  void train_rows(std::int64_t step, std::int64_t global_batch, std::int64_t first_row,
                  std::int64_t rows, SampleRows& out) const;
  // Rows of evaluation batch `index` (from 0), in an order that is mixed but equal at each
  // evaluation and for each seed; wraps round. REQUIRES: valid_samples() > 0.
  void valid_rows(std::int64_t index, std::int64_t global_batch, std::int64_t first_row,
                  std::int64_t rows, SampleRows& out) const;
  // The same of data.valid_sets[set].
  void set_rows(std::size_t set, std::int64_t index, std::int64_t global_batch,
                std::int64_t first_row, std::int64_t rows, SampleRows& out) const;

 private:
  TrainingData(DataSets&& sets, const DataOptions& options, std::int64_t seq, std::uint64_t seed);
  // Rows [first_row, first_row + rows) of batch `batch`, from 0.
  void fill(const SampleMix& mix, std::int64_t batch, std::int64_t global_batch,
            std::int64_t first_row, std::int64_t rows, SampleRows& out) const;
  // SampleRows::learned_targets. The micro-batches of a step ask for the same batch.
  std::int64_t learned_targets(const SampleMix& mix, std::int64_t batch,
                               std::int64_t global_batch) const;

  struct Counted {
    const SampleMix* mix = nullptr;
    std::int64_t batch = 0, global_batch = 0, targets = 0;
  };

  std::int64_t seq_;
  bool packs_rows_;  // rows have cu_seqlens
  std::unique_ptr<Tokenizer> tokenizer_;
  std::int64_t vocab_size_ = 0;
  SampleMix train_, valid_;
  std::vector<SampleMix> sets_;
  std::vector<std::string> set_names_;
  std::int64_t test_tokens_ = 0;
  mutable std::mutex counted_mutex_;
  mutable Counted counted_;  // the batch whose targets were counted last
};

}  // namespace sluice
