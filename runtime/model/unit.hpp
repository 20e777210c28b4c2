// Units: the smallest things gathered, run and released together. A unit is a pure function
// (parameters, input) -> output whose forward and backward the engine calls, one micro-batch at a
// time.
//
// Shapes: B samples, S tokens, H hidden, V vocabulary. Activations are [B, S, H] in the model's
// dtype; the first unit takes tokens [B, S] int64. Parameters come as views of gathered flat
// groups, valid for the call only; what a unit saves may view them (their bytes are back, at
// another place, when backward runs, since the storage object is the same). Not thread-safe; one
// rank's engine calls in turn.
//
// Of tensor-parallel ranks (ModelPart) each has a unit with its part of the parameters; all run the
// same calls in the same order and speak to each other inside (tensor_group.hpp). Tokens and
// targets are whole on every rank. With ModelPart::sequence activations between units are
// [B, S / tensor, H], tokens [rank x S / tensor, ...) of each sample; else whole and equal on all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.hpp"

namespace sluice {

// Where a call stands in the run: all that dropout depends on, beside unit and element; and for a
// forward of positions that follow others, where it stands in its sequences.
struct UnitCall {
  bool training = false;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // of the global batch; row b is sample first_sample + b
  // What the unit remembers of positions before `first_position`, [B, cache_elems()] of the model's
  // dtype; it adds those of the call. Null: the call holds whole sequences. Positions come in turn:
  // any number from 0, then one at a time.
  const at::Tensor* cache = nullptr;
  std::int64_t first_position = 0;  // of the input; 0 without a cache
};

// What forward keeps for backward. Freeing it frees the memory.
class Saved {
 public:
  virtual ~Saved() = default;
  // All that it keeps, each tensor alone on its storage, where that memory may be taken away after
  // forward and given back, with its content, before backward. Empty: it may not.
  [[nodiscard]] virtual std::vector<at::Tensor> tensors() const { return {}; }
};

// Where a parameter's gradient goes: an fp32 view of the group's gradient buffer. Its content is to
// be replaced, or added to where `accumulate`.
struct GradTarget {
  at::Tensor grad;
  bool accumulate = false;
};

// Replaces or adds, as the target says.
inline void store_gradient(const GradTarget& target, const at::Tensor& grad) {
  if (target.accumulate) {
    target.grad.add_(grad);
  } else {
    target.grad.copy_(grad);
  }
}

class GradSink;

// The half of a backward that no other unit waits for: products that give gradients of weights
// (zero-bubble pipelines, Qi et al. 2024). It holds their operands, the gradient of the unit's
// output among them, whose memory must be their own; the unit outlives it.
class Deferred {
 public:
  virtual ~Deferred() = default;
  // The gradients that backward left out, with the bits it would have given them. Called once, on
  // the unit's thread, in any order among micro-batches and units; frees what it holds as it goes.
  virtual void run(GradSink& sink) = 0;
};

class GradSink {
 public:
  virtual ~GradSink() = default;
  // The place of the unit's parameter `index`. Called once a backward for each parameter, by
  // backward or by what it deferred.
  virtual GradTarget target(int index) = 0;
  // Where backward leaves the gradients of weights for later; null: it gives all of them itself. A
  // unit that does not split (Unit::splits_backward) never asks.
  virtual std::unique_ptr<Deferred>* deferred() { return nullptr; }
};

class Unit {
 public:
  virtual ~Unit() = default;
  // `saved` receives what backward needs; null: no backward will follow.
  virtual at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                             const at::Tensor& input, std::unique_ptr<Saved>* saved) = 0;
  // Gradient of the input; undefined for the first unit. Consumes `saved`.
  virtual at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                              const at::Tensor& input, std::unique_ptr<Saved> saved,
                              const at::Tensor& grad_output, GradSink& sink) = 0;
  [[nodiscard]] virtual bool backward_reads_params() const { return true; }
  // Whether what forward saves on the host may be moved (Saved::tensors).
  [[nodiscard]] virtual bool saved_moves() const { return false; }
  // Whether backward can leave gradients of weights for later (GradSink::deferred).
  [[nodiscard]] virtual bool splits_backward() const { return false; }
  // Elements of UnitCall::cache for one sample of up to `positions` positions; 0: the unit looks at
  // each position alone. None: it cannot run a sequence in parts.
  [[nodiscard]] virtual std::optional<std::int64_t> cache_elems(std::int64_t /*positions*/) const {
    return std::nullopt;
  }
};

// The last unit: final norm, classifier and cross entropy, without ever holding a micro-batch's
// logits.
class LossHead {
 public:
  virtual ~LossHead() = default;
  // Bytes of scratch loss() works in, for B x S rows of inputs in dtype.
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t rows, DType dtype) const = 0;
  // Sum of the losses over all positions. targets: [B, S] int64. With a sink, also the gradients of
  // (sum x grad_scale) by the parameters and, in grad_input, by the input. scratch: uint8.
  virtual double loss(std::span<const at::Tensor> params, const at::Tensor& input,
                      const at::Tensor& targets, double grad_scale, const at::Tensor& scratch,
                      GradSink* sink, at::Tensor* grad_input) = 0;
  // Logits [B, V] fp32 of position `position`.
  virtual at::Tensor logits(std::span<const at::Tensor> params, const at::Tensor& input,
                            std::int64_t position) = 0;
};

}  // namespace sluice
