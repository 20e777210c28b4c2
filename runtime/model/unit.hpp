// Units: the smallest things gathered, run and released together. A unit is a pure function
// (parameters, input) -> output. The engine calls its forward and backward, one micro-batch at a
// time.
//
// Shapes: B samples, S tokens, H hidden, V vocabulary. Activations are [B, S, H] in the model's
// dtype; the first unit takes tokens [B, S] int64. Parameters are views of gathered flat groups,
// valid only during the call. Saved tensors may view them: backward runs with the same storage
// object, gathered again, possibly at another address. Not thread-safe; one rank's engine calls in
// turn.
//
// Each tensor-parallel rank (ModelPart) has a unit with its part of the parameters. All ranks make
// the same calls in the same order and exchange data inside the unit (tensor_group.hpp). Tokens and
// targets are whole on every rank. With ModelPart::sequence activations between units are [B, S /
// tensor, H], tokens [rank x S / tensor, ...) of each sample; else whole and equal on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/model/loss_sum.hpp"

namespace sluice {

class Documents;
namespace cuda {
struct StepScalars;
}

// Place of a call in the run. Dropout depends only on this place, unit and element. A forward of
// later positions also finds its place in the sequence.
struct UnitCall {
  bool training = false;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // of the global batch; row b is sample first_sample + b
  // Memory of positions before `first_position`, [B, cache_elems()] of the model's dtype; the unit
  // adds the call's positions. Null: the call holds whole sequences. Positions come in order: any
  // number from 0, then one at a time.
  const at::Tensor* cache = nullptr;
  std::int64_t first_position = 0;  // of the input; 0 without a cache
  // Of the micro-batch's rows (documents.hpp); null: each row is one document. Other than null only
  // for a model made with ModelOptions::packed_rows.
  const Documents* documents = nullptr;
  // In memory of the unit's GPU: the step's numbers for kernels that a graph records, `step` among
  // them. Null: the numbers of the call are given by value.
  const cuda::StepScalars* scalars = nullptr;
};

// Data that forward keeps for backward. Destroying it frees the memory.
class Saved {
 public:
  virtual ~Saved() = default;
  // All kept tensors, each alone on its storage, if their memory may be taken away after forward
  // and given back with its content before backward. Empty: it may not.
  [[nodiscard]] virtual std::vector<at::Tensor> tensors() const { return {}; }
};

// Place of a parameter's gradient: an fp32 view of the group's gradient buffer. The content is
// replaced, or added to with `accumulate`. Undefined for a frozen parameter, whose gradient is not
// computed.
struct GradTarget {
  at::Tensor grad;
  bool accumulate = false;
  [[nodiscard]] bool wanted() const { return grad.defined(); }
};

// Replaces or adds, as the target says.
inline void store_gradient(const GradTarget& target, const at::Tensor& grad) {
  if (!target.wanted()) return;
  if (target.accumulate) {
    target.grad.add_(grad);
  } else {
    target.grad.copy_(grad);
  }
}

class GradSink;

// The half of a backward that no other unit waits for: products that give gradients of weights
// (zero-bubble pipelines, Qi et al. 2024). It holds their operands, including the gradient of the
// unit's output, in memory of its own. The unit must outlive it.
class Deferred {
 public:
  virtual ~Deferred() = default;
  // Computes the gradients that backward left out, with the same bits. Call once, on the unit's
  // thread, in any order among micro-batches and units. Frees its operands on the way.
  virtual void run(GradSink& sink) = 0;
};

class GradSink {
 public:
  virtual ~GradSink() = default;
  // The place of the unit's parameter `index`. Backward or its deferred half calls it once for each
  // parameter.
  virtual GradTarget target(int index) = 0;
  // Where backward leaves the gradients of weights for later; null: backward computes all of them
  // itself. A unit that does not split (Unit::splits_backward) never asks.
  virtual std::unique_ptr<Deferred>* deferred() { return nullptr; }
};

class Unit {
 public:
  virtual ~Unit() = default;
  // `saved` receives the data for backward; null: no backward follows.
  virtual at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                             const at::Tensor& input, std::unique_ptr<Saved>* saved) = 0;
  // Gradient of the input; undefined for the first unit. Consumes `saved`.
  virtual at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                              const at::Tensor& input, std::unique_ptr<Saved> saved,
                              const at::Tensor& grad_output, GradSink& sink) = 0;
  [[nodiscard]] virtual bool backward_reads_params() const { return true; }
  // Whether kept tensors may be moved off the device (Saved::tensors).
  [[nodiscard]] virtual bool saved_moves() const { return false; }
  // Whether backward can leave gradients of weights for later (GradSink::deferred).
  [[nodiscard]] virtual bool splits_backward() const { return false; }
  // Elements of UnitCall::cache for one sample of up to `positions` positions; 0: the unit computes
  // each position alone. nullopt: the unit cannot run a sequence in parts.
  [[nodiscard]] virtual std::optional<std::int64_t> cache_elems(std::int64_t /*positions*/) const {
    return std::nullopt;
  }
};

// The factor of the gradients of a micro-batch's sum of losses.
struct LossFactor {
  LossFactor(double factor, const cuda::StepScalars* in_memory = nullptr)
      : value(factor), scalars(in_memory) {}
  double value;
  const cuda::StepScalars* scalars;  // on a GPU: the factor is read there; null: `value` is
};

// The last unit: final norm, classifier and cross entropy. A micro-batch's logits never exist as a
// whole.
class LossHead {
 public:
  virtual ~LossHead() = default;
  // Scratch bytes of loss(), for B x S rows of inputs in dtype.
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t rows, DType dtype) const = 0;
  // Sum of the losses over all positions. targets: [B, S] int64. With a sink also computes the
  // gradients of (sum x factor) by the parameters and, in grad_input, by the input. scratch:
  // uint8; undefined: the head allocates scratch after its result, because the result lives longer.
  // The freed scratch then merges with the free memory behind it.
  virtual LossSum loss(std::span<const at::Tensor> params, const at::Tensor& input,
                       const at::Tensor& targets, LossFactor factor, const at::Tensor& scratch,
                       GradSink* sink, at::Tensor* grad_input) = 0;
  // Logits [B, V] fp32 of position `position`.
  virtual at::Tensor logits(std::span<const at::Tensor> params, const at::Tensor& input,
                            std::int64_t position) = 0;
};

}  // namespace sluice
