// LoadBatch: tokens and targets of a micro-batch, from the training data, the validation data or
// the caller's rows. Compute lane.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/data/training_data.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/engine/ops/flights.hpp"

namespace sluice {

struct StepRun;

// Rows [first_row, first_row + rows) of global batch `index`: optimizer step (from 1) of the
// training data, batch (from 0) of the validation data.
using RowSource = std::function<void(std::int64_t index, std::int64_t first_row, std::int64_t rows,
                                     SampleRows& out)>;

// First row of the operation's micro-batch in the global batch, whose rows are ordered by
// micro-batch, then data-parallel rank.
[[nodiscard]] std::int64_t first_row(const EngineSetup& setup, const StepRun& run, const Op& op);

// The rows of a micro-batch are read once a program: by LoadBatch, or earlier if another operation
// asks for the rows' documents or for the number of learned targets.
class BatchOps {
 public:
  // The parts that the handler works on. They outlive the handler. `for_graphs`: batches and
  // documents lie in fixed memory, which recorded kernels read.
  struct Parts {
    const EngineSetup& setup;
    StepRun& run;
    Flights& flights;
    bool for_graphs = false;
  };
  BatchOps(const Parts& parts, RowSource train, RowSource valid);

  void load(const Op& op);
  // In training: the factor by which the loss head multiplies gradients; 0 on a stage without a
  // loss head.
  [[nodiscard]] double loss_factor();
  // Documents of the operation's rows; null: each row is one. A stage that loads no tokens reads
  // the rows for them.
  [[nodiscard]] const Documents* documents(const Op& op);
  // REQUIRES: a training step, before its first unit or message. With graphs and packed rows: reads
  // the rows of all micro-batches and enqueues their documents. Returns whether recorded calls of
  // attention have room (Documents::room) for fewer documents than a micro-batch of this step has;
  // the step must then be recorded again.
  [[nodiscard]] bool outgrows_graphs();
  // For RunMode::kLosses: micro-batch i is rows(i, 0, ...), i < count. `rows` outlives the runs.
  void use_rows(const RowSource& rows, std::int64_t count);
  // For kLogits and kDecode: the tokens [rows, tokens] of the only micro-batch.
  void use_tokens(std::span<const std::int64_t> tokens, BatchSize size);

 private:
  void read_rows(const Op& op, SampleRows& rows) const;
  [[nodiscard]] bool reads_rows() const;
  [[nodiscard]] bool loads() const;
  // The flight of the operation's micro-batch, whose rows have been read.
  Flight& read(const Op& op);
  void note_documents(Flight& flight, const SampleRows& rows) const;
  [[nodiscard]] at::Tensor on_device(std::span<const std::int64_t> values, BatchSize size) const;
  [[nodiscard]] at::Tensor staged(std::span<const std::int64_t> values, BatchSize size) const;
  void put(const SampleRows& rows, Flight& flight) const;

  const EngineSetup& setup_;
  StepRun& run_;
  Flights& flights_;
  const bool for_graphs_;
  std::int64_t room_ = 0;  // of recorded calls; grows
  const RowSource train_;
  const RowSource valid_;
  const RowSource* given_ = nullptr;
  std::int64_t given_count_ = 0;
  at::Tensor given_tokens_;
};

}  // namespace sluice
