// A model as a list of units that run, made from its options.
#pragma once

#include <memory>
#include <vector>

#include "runtime/model/model_spec.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// tokens [B, S] -> [B, S, H]; params: table [V, H] and, where positions are learned, theirs [P, H].
// `group`: the tensor-parallel ranks over which the table is cut; null: one has all of it.
[[nodiscard]] std::unique_ptr<Unit> make_token_embedding(const ModelOptions& options,
                                                         std::shared_ptr<TensorGroup> group = {});

// The units of a part of a model, in order of forward; the head apart.
struct Model {
  ModelSpec spec;
  std::vector<std::unique_ptr<Unit>> units;
  std::unique_ptr<LossHead> head;         // null: another stage has it
  std::shared_ptr<TensorGroup> tensor{};  // null: one tensor-parallel rank
};

// REQUIRES: options.vocab > 0. Constants of the model (ModelSpec::constant_bytes) are made here.
// `tensor`: the communicator of the part's tensor-parallel ranks, which outlives the model; null
// where there is one, or for dry runs on meta tensors. Throws as make_model_spec, and ConfigError
// where part.tensor > 1 meets autograd's units.
[[nodiscard]] Model make_model(const ModelOptions& options, const ModelPart& part = {},
                               Communicator* tensor = nullptr);
// The same for dry runs alone, on meta tensors: its constants are not computed.
[[nodiscard]] Model make_dry_model(const ModelOptions& options, const ModelPart& part = {});

}  // namespace sluice
