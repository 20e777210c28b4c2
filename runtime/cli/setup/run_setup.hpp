// From a configuration to the engine's options; shared by planning a run and starting it. Functions
// of their arguments; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "configs/reader.hpp"
#include "parallel/mesh.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/run/matmul_choice.hpp"

namespace sluice {

struct MachineProfile;

struct RunPlace {
  int world = 1;        // ranks of the whole job
  int local_ranks = 1;  // of one host
  bool on_gpu = false;
  GpuFigures gpu{};
  std::int64_t card_bytes = 0;  // memory of a rank's GPU; 0: not known, or not to be checked
  MeshCoordinates at{};         // of the rank whose part of the model is meant
  // All ranks are on other machines, so on_gpu and gpu are this process's assumption. A plan that
  // does not fit is no refusal: every rank checks its own.
  bool is_assumed = false;
};

// Ranks of the mesh whose programs and memory may differ: one of each pipeline stage. Of its
// tensor-parallel ranks the first holds most.
[[nodiscard]] std::vector<RunPlace> rank_classes(const RunConfig& run, const RunPlace& place);

// Whether the ranks use this machine's GPUs. Throws ConfigError if the machine has GPUs that this
// process cannot use and launch.backend does not ask for the CPU.
[[nodiscard]] bool runs_on_gpu(const RunConfig& run);

// The same of ranks on other machines, as an assumption from this machine's GPUs.
[[nodiscard]] bool would_run_on_gpu(const RunConfig& run);

// Of this machine's GPUs: the lowest capability, the most multiprocessors.
[[nodiscard]] GpuFigures visible_gpu_figures();
[[nodiscard]] GpuFigures gpu_figures(const MachineProfile& machine);

// Adds a note if CUDA_VISIBLE_DEVICES hides GPUs of this machine, unless launch.backend asks for
// the CPU.
void note_hidden_gpus(LoadedConfig& config);
// Prints the configuration's notes to standard error, a line each. Only one process of a job calls
// it.
void print_notes(const LoadedConfig& config);

// The timeout of one collective: launch.timeout.
[[nodiscard]] std::chrono::milliseconds launch_timeout(const RunConfig& run);

// A rank's share of the host's budgets; the device's budget is the rank's own.
[[nodiscard]] TierBudgets rank_budgets(const RunConfig& run, const RunPlace& place);
// For the rank at place.at. REQUIRES: validate() passed for this world; the vocabulary is known.
[[nodiscard]] EngineOptions engine_options(const RunConfig& run, const RunPlace& place);

// Sets model.matmul by train.matmul, or by the `resumed` run (matmul_choice.hpp). Throws
// ConfigError. Calls `measure` at most once.
MatmulDecision settle_matmul(LoadedConfig& config, bool on_gpu,
                             const std::function<MatmulRates()>& measure,
                             std::optional<MatmulType> resumed = {});
// Times a layer of nearly the model's shape: 0.3 s.
[[nodiscard]] MatmulRates measure_matmul(const RunConfig& run);

}  // namespace sluice
