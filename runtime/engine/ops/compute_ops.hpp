// What units compute: Forward, LossHead, Backward, BackwardWeights. Compute lane, executing thread.
//
// Also owns the two kinds of slots that units work in: the loss head's scratch, and the caches of a
// sequence that is run in parts (RunMode::kDecode). Caches lie in the arena, so any other program
// overwrites them: the number of cached positions is then 0.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/engine/ops/flights.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class BatchOps;

class ComputeOps {
 public:
  // `batches`: knows the documents of rows. `scalars`: StepScalars::on_device().
  ComputeOps(const StepParts& parts, BatchOps& batches, const cuda::StepScalars* scalars);

  void begin_program();
  // A slot of the arena, as bytes, for the loss head or for a unit's cache; undefined for a loss
  // head without a slot, which takes its scratch while it runs.
  void bind(const Buffer& buffer, const at::Tensor& bytes);

  void forward(const Op& op);
  void loss_head(const Op& op);
  void backward(const Op& op);
  void backward_weights(const Op& op);
  // In training, after the last loss head: adds the losses that a GPU has to the run's sum. The
  // host waits once for all micro-batches.
  void add_losses();
  // The losses of a training step's micro-batches on a GPU, fp64; else undefined.
  [[nodiscard]] const at::Tensor& losses() const { return losses_; }

  // Of the last program in kLogits or kDecode: [rows, words of this rank]; undefined on ranks
  // without the loss head.
  [[nodiscard]] at::Tensor take_logits();
  [[nodiscard]] std::int64_t cached_positions() const { return cached_; }
  void note_cached(std::int64_t positions) { cached_ = positions; }
  // Of the last program in kDiagnose: the first operation that made a non-finite value, or -1.
  [[nodiscard]] OpId first_non_finite() const { return first_non_finite_; }

 private:
  [[nodiscard]] UnitCall call_of(const Op& op) const;
  void finish_gradient(const Op& op);
  void open_grads(const Op& op);
  void look_at(const at::Tensor& value);
  void look_at_grads(const Op& op);

  const EngineSetup& setup_;
  StepRun& run_;
  Flights& flights_;
  GroupStore& store_;
  BatchOps& batches_;
  const cuda::StepScalars* const scalars_;
  at::Tensor scratch_;      // the loss head's slot; undefined: the head takes its own while it runs
  at::Tensor losses_;       // fp64, of a training step's micro-batches on a GPU; else undefined
  at::Tensor read_losses_;  // the same in registered memory
  at::Tensor logits_;
  std::vector<at::Tensor> caches_;  // by unit
  std::int64_t cached_ = 0;
  OpId first_non_finite_ = -1;
};

}  // namespace sluice
