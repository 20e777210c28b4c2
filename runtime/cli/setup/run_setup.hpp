// From a configuration to what the engine is asked for: what planning a run and starting it have in
// common. Functions of their arguments; thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "configs/reader.hpp"
#include "parallel/mesh.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/run/matmul_choice.hpp"

namespace sluice {

struct RunPlace {
  int world = 1;        // ranks of the whole job
  int local_ranks = 1;  // of one host
  bool on_gpu = false;
  MeshCoordinates at{};  // of the rank whose part of the model is meant
};

// Of the mesh, ranks whose programs and memory may differ: one of each pipeline stage. Of its
// tensor-parallel ranks the first has most.
[[nodiscard]] std::vector<RunPlace> rank_classes(const RunConfig& run, const RunPlace& place);

// Whether the configuration's ranks use this machine's GPUs. Throws ConfigError where the machine
// has GPUs that this process cannot use: only launch.backend takes the CPU instead.
[[nodiscard]] bool runs_on_gpu(const RunConfig& run);

// The configuration's notes to standard error, a line each. One process of a job says them.
void print_notes(const LoadedConfig& config);

// Of one collective: launch.timeout.
[[nodiscard]] std::chrono::milliseconds launch_timeout(const RunConfig& run);

// A rank's share of the budgets, which are of its host; the device's is its own.
[[nodiscard]] TierBudgets rank_budgets(const RunConfig& run, const RunPlace& place);
// Of the rank at place.at. REQUIRES: validate() passed for this world; the vocabulary is known.
[[nodiscard]] EngineOptions engine_options(const RunConfig& run, const RunPlace& place);

// Sets model.matmul by train.matmul, or as it was `resumed` (matmul_choice.hpp). Throws
// ConfigError. `measure` is called at most once.
MatmulDecision settle_matmul(LoadedConfig& config, bool on_gpu,
                             const std::function<MatmulRates()>& measure,
                             std::optional<MatmulType> resumed = {});
// Of a layer of nearly the model's shape: 0.3 s.
[[nodiscard]] MatmulRates measure_matmul(const RunConfig& run);

}  // namespace sluice
