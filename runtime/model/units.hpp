// A model as a list of units that run, made from its options.
#pragma once

#include <memory>
#include <vector>

#include "runtime/model/model_spec.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// tokens [B, S] -> [B, S, H]; params: table [V, H] and, where positions are learned, theirs [P, H].
[[nodiscard]] std::unique_ptr<Unit> make_token_embedding(const ModelOptions& options);

// All units of a model, in order of forward; the head apart.
struct Model {
  ModelSpec spec;
  std::vector<std::unique_ptr<Unit>> units;
  std::unique_ptr<LossHead> head;
};

// REQUIRES: options.vocab > 0. Constants of the model (ModelSpec::constant_bytes) are made here.
[[nodiscard]] Model make_model(const ModelOptions& options);

}  // namespace sluice
