// Uses of an engine's model outside training: losses, logits, and the search for the first
// non-finite value. Collective. REQUIRES: no deferred update, except for find_non_finite().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/ops/batch_ops.hpp"

namespace sluice {

class ProgramRunner;
class StepOps;
struct EnginePrograms;

// engine.hpp documents the functions, under the same names.
class ModelUse {
 public:
  ModelUse(const EngineSetup& setup, const EnginePrograms& programs, StepRun& run, StepOps& ops,
           ProgramRunner& runner);

  [[nodiscard]] std::optional<double> evaluate(std::int64_t batches,
                                               const std::function<bool()>& leave);
  [[nodiscard]] std::vector<double> losses(const RowSource& rows, std::int64_t count);
  [[nodiscard]] at::Tensor decode(std::int64_t first, std::span<const std::int64_t> tokens);
  [[nodiscard]] at::Tensor next_token_logits(const SampleRows& tokens, std::int64_t rows);
  [[nodiscard]] std::string find_non_finite(std::int64_t step);

 private:
  // Sends the logits of the last pipeline stage to all stages.
  [[nodiscard]] at::Tensor share_logits();
  [[nodiscard]] std::string describe_place(const Op& op) const;
  [[nodiscard]] double place_in_step(OpId op) const;

  const EngineSetup& setup_;
  const EnginePrograms& programs_;
  StepRun& run_;
  StepOps& ops_;
  ProgramRunner& runner_;
};

}  // namespace sluice
