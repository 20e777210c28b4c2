#include "runtime/cli/setup/run_setup.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/error.hpp"
#include "configs/derived.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/plan/machine_profile.hpp"
#include "runtime/run/generator.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {

// 0 stays "no limit".
std::int64_t share_of(std::int64_t budget, int local_ranks) {
  return budget == 0 ? 0 : std::max<std::int64_t>(1, budget / local_ranks);
}

// 0: not known.
GpuFigures known_figures(int compute_capability, int multiprocessors) {
  GpuFigures figures;
  if (compute_capability > 0) figures.compute_capability = compute_capability;
  if (multiprocessors > 0) figures.multiprocessors = multiprocessors;
  return figures;
}

TierOptions tier_options(const RunConfig& run, const RunPlace& place) {
  const TierBudgets budgets = rank_budgets(run, place);
  TierOptions tiers;
  tiers.host_budget = budgets.host;
  tiers.nvme.paths = run.offload.nvme_path;
  tiers.nvme.capacity_bytes = budgets.nvme;
  tiers.nvme.cache = run.offload.direct ? IoCache::kDirect : IoCache::kDirectOrBuffered;
  tiers.nvme.checksums = run.offload.checksums;
  tiers.nvme.queue_depth = run.offload.queue_depth;
  tiers.nvme.block_bytes = run.offload.block_bytes;
  // A drive that is silent is named before the watchdog sees a rank that waits (timeout / 2).
  tiers.nvme.stall_timeout_s = std::min(tiers.nvme.stall_timeout_s, run.launch.timeout_seconds / 4);
  return tiers;
}

}  // namespace

GpuFigures visible_gpu_figures() {
  return known_figures(visible_gpu_capability(), visible_gpu_multiprocessors());
}

GpuFigures gpu_figures(const MachineProfile& machine) {
  return known_figures(machine.compute_capability, machine.multiprocessors);
}

void print_notes(const LoadedConfig& config) {
  for (const std::string& note : config.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
}

void note_hidden_gpus(LoadedConfig& config) {
  const Backend backend = config.run.launch.backend;
  if (backend == Backend::kGloo || backend == Backend::kLocal) return;
  const std::string& hidden = hidden_gpus();
  if (hidden.empty()) return;
  const bool takes_cpu = backend == Backend::kAuto && visible_gpu_count() == 0;
  config.notes.push_back(hidden + (takes_cpu ? ", so ranks run on the CPU; " : "; ") + kShowGpus);
}

bool runs_on_gpu(const RunConfig& run) {
  if (run.launch.backend == Backend::kGloo || run.launch.backend == Backend::kLocal) return false;
  if (const std::optional<GpuFault>& fault = gpu_fault()) {
    throw ConfigError(fault->reason + "; " + fault->remedy +
                      "; launch.backend: gloo runs on the CPU");
  }
  return would_run_on_gpu(run);
}

bool would_run_on_gpu(const RunConfig& run) {
  const Backend backend = run.launch.backend;
  return backend == Backend::kNccl || (backend == Backend::kAuto && visible_gpu_count() > 0);
}

std::chrono::milliseconds launch_timeout(const RunConfig& run) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(run.launch.timeout_seconds * 1000));
}

std::vector<RunPlace> rank_classes(const RunConfig& run, const RunPlace& place) {
  std::vector<RunPlace> places;
  for (int stage = 0; stage < run.parallel.pipeline; ++stage) {
    places.push_back(place);
    places.back().at = {.pp = stage};
  }
  return places;
}

TierBudgets rank_budgets(const RunConfig& run, const RunPlace& place) {
  return {.device = run.memory.device,
          .host = share_of(run.memory.host, place.local_ranks),
          .nvme = share_of(run.memory.nvme, place.local_ranks),
          .ranks_of_host = place.local_ranks,
          .card = place.card_bytes,
          .smaller_step = run.train.micro_batch > 1 ? "" : "--set model.seq=<fewer>"};
}

EngineOptions engine_options(const RunConfig& run, const RunPlace& place) {
  EngineOptions options;
  options.model = run.model;
  options.train = run.train;
  options.generate_positions = sample_positions(run.model.seq, run.train.sample_tokens);
  options.optimizer = run.optimizer;
  options.schedule = run.schedule;
  options.zero = run.zero;
  options.recompute = run.recompute;
  options.loss_scale = run.loss_scale;
  options.offload = run.offload;
  options.tiers = tier_options(run, place);
  const Derived derived = derive(run, place.world);
  options.dp = derived.dp;
  options.model.kv_heads = derived.kv_heads;
  options.model.ffn = derived.ffn;
  options.model.recompute_attention = run.recompute.mode == RecomputeMode::kSelective;
  options.model.on_gpu = place.on_gpu;
  options.model.gpu = place.gpu;
  options.model.deterministic = run.train.deterministic;
  options.model.packed_rows = run.data.packs_rows();
  options.model.attention = settled_attention(run.train.attention, options.model, run.train.dtype);
  options.model.freeze = run.train.freeze;
  options.parallel = run.parallel;
  options.parallel.data = derived.dp;
  options.part = part_of_rank(options.model, run.parallel, place.at);
  // A sequence that is shared cannot be gone on with token by token.
  if (options.part.sequence) options.generate_positions = 0;
  return options;
}

MatmulDecision settle_matmul(LoadedConfig& config, bool on_gpu,
                             const std::function<MatmulRates()>& measure,
                             std::optional<MatmulType> resumed) {
  RunConfig& run = config.run;
  try {
    const MatmulDecision decision = choose_matmul({.choice = run.train.matmul,
                                                   .dtype = run.train.dtype,
                                                   .on_gpu = on_gpu,
                                                   .explicit_units = run.model.explicit_units,
                                                   .resumed = resumed},
                                                  measure);
    run.model.matmul = decision.type;
    return decision;
  } catch (const ConfigError& error) {
    throw ConfigError(config.place("train.matmul") + ": " + error.what());
  }
}

MatmulRates measure_matmul(const RunConfig& run) {
  const ModelOptions model = with_defaults(run.model);
  return measure_matmul_rates(
      run.train.dtype,
      {.rows = run.train.micro_batch * model.seq, .in = model.hidden, .out = model.ffn});
}

}  // namespace sluice
