// A model as a list of units, made from its options.
#pragma once

#include <memory>
#include <vector>

#include "runtime/model/model_spec.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// tokens [B, S] -> [B, S, H]; params: table [V, H] and, with learned positions, positions [P, H].
// `group`: the tensor-parallel ranks over which the table is cut; null: one rank has all of it.
[[nodiscard]] std::unique_ptr<Unit> make_token_embedding(const ModelOptions& options,
                                                         std::shared_ptr<TensorGroup> group = {});

// The units of a part of a model, in order of forward, without the head.
struct Model {
  ModelSpec spec;
  std::vector<std::unique_ptr<Unit>> units;
  std::unique_ptr<LossHead> head;         // null: another stage has it
  std::shared_ptr<TensorGroup> tensor{};  // null: one tensor-parallel rank
};

// REQUIRES: options.vocab > 0. Computes the model's constants (ModelSpec::constant_bytes).
// `tensor`: the communicator of the part's tensor-parallel ranks, which must outlive the model;
// null for one rank, or for dry runs on meta tensors. Throws as make_model_spec, and ConfigError
// for part.tensor > 1 with autograd units.
[[nodiscard]] Model make_model(const ModelOptions& options, const ModelPart& part = {},
                               Communicator* tensor = nullptr);
// make_model() without constants, only for dry runs on meta tensors.
[[nodiscard]] Model make_dry_model(const ModelOptions& options, const ModelPart& part = {});

}  // namespace sluice
