// The constant parts of an engine: options, the rank's part of the model, step plan, communicators,
// device. Every handler may hold a reference.
#pragma once

#include "runtime/engine/engine_settings.hpp"
#include "runtime/engine/mesh_ref.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/model/units.hpp"

namespace sluice {

// Size of a micro-batch: rows, and tokens of each row.
struct BatchSize {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
};

struct EngineSetup {
  EngineOptions options;
  Model model;
  StepPlan plan;
  MeshRef comms;
  at::Device device;

  [[nodiscard]] const StepShape& shape() const { return plan.shape; }
  [[nodiscard]] const ModelSpec& spec() const { return model.spec; }
  [[nodiscard]] Communicator& world() const { return comms->world(); }
  // Ranks with the same part of the model.
  [[nodiscard]] Communicator& data() const { return comms->data(); }
  [[nodiscard]] bool trains() const { return options.purpose == EnginePurpose::kTrain; }
  [[nodiscard]] BatchSize micro_batch() const {
    return {options.train.micro_batch, model.spec.options.seq};
  }
  // Tokens of a step's batch, over all ranks.
  [[nodiscard]] double tokens_of_step() const {
    const BatchSize size = micro_batch();
    return static_cast<double>(plan.shape.micro_batches * data().size()) *
           static_cast<double>(size.rows * size.tokens);
  }
  // Several ranks compute the same loss; one of them counts it.
  [[nodiscard]] bool counts_loss() const { return comms->at().tp == 0 && plan.shape.ends_model(); }
};

}  // namespace sluice
