#include "runtime/cli/setup/plan_setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/parallel_rules.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "parallel/comm/gpu_driver.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/machine_room.hpp"
#include "runtime/observe/progress_line.hpp"
#include "runtime/plan/search/other_numbers.hpp"
#include "runtime/plan/search/search_text.hpp"
#include "runtime/program/write/early_updates.hpp"
#include "runtime/run/generator.hpp"

namespace sluice {
namespace {

// By the rules between mesh, model and placement.
bool is_allowed(const RunConfig& run, const EngineOptions& options) {
  RunConfig other = run;
  other.model = options.model;
  other.parallel = options.parallel;
  other.offload = options.offload;
  other.train.accumulation_order = options.train.accumulation_order;
  return broken_parallel_rules(other).empty() && broken_matmul_rules(other).empty();
}

// From the doctor's file of this machine, if the file has a GPU.
std::optional<MachineProfile> measured_gpu() {
  const std::optional<MachineRates> rates = find_machine_rates();
  if (!rates || !rates->gpu) return std::nullopt;
  return measured_profile(*rates, profile_like(*rates->gpu));
}

// Name, memory and compute capability of this machine's GPUs are the driver's; the rest is that of
// the doctor's file, or of the profile that is most like them.
PlanMachine machine_of_gpus() {
  const std::vector<VisibleGpu>& gpus = driver_answer().gpus;
  GpuRates shown;
  if (!gpus.empty()) shown.name = gpus.front().name;
  std::optional<MachineProfile> measured = measured_gpu();
  PlanMachine machine{measured ? std::move(*measured) : profile_like(shown), false, {}};
  MachineProfile& profile = machine.profile;
  if (!measured) {
    machine.notes.push_back("no --profile was given: " + profile.name +
                            " is assumed of these GPUs (`sluice doctor` measures them), "
                            "with the memory that they have");
    if (profile.peak_flops.bf16 == 0) profile.peak_flops = profile.gemm_flops;
    profile.devices_per_node = std::max(profile.devices_per_node, static_cast<int>(gpus.size()));
  }
  for (const VisibleGpu& gpu : gpus) {
    if (gpu.memory_bytes == 0) continue;
    const bool first = &gpu == &gpus.front();
    profile.device_memory_bytes =
        first ? gpu.memory_bytes : std::min(profile.device_memory_bytes, gpu.memory_bytes);
  }
  if (visible_gpu_capability() > 0) profile.compute_capability = visible_gpu_capability();
  if (visible_gpu_multiprocessors() > 0) profile.multiprocessors = visible_gpu_multiprocessors();
  return machine;
}

}  // namespace

PlanMachine find_machine(const std::string& profile, const RunConfig& run) {
  if (!profile.empty()) return {named_profile(profile), false, {}};
  if (runs_on_gpu(run)) return machine_of_gpus();
  MachineProfile base = named_profile("cpu");
  if (const auto rates = find_machine_rates()) return {measured_profile(*rates, base), false, {}};
  base.name = "this machine";
  base.origin = "matrix products measured now, the rest of profile cpu";
  return {base, true, {"`sluice doctor` measures this machine once, for better times"}};
}

int ranks_of_host(PlanMachine& machine, const RunConfig& run, int world) {
  int& devices = machine.profile.devices_per_node;
  if (run.launch.nproc > devices) devices = std::min(run.launch.nproc, world);
  if (devices == 0) devices = world;
  if (devices == 1 && world > 1) {
    machine.notes.push_back("profile " + machine.profile.name + " has one card a host, so the " +
                            std::to_string(world) +
                            " ranks are on as many hosts; --set launch.nproc=" +
                            std::to_string(world) + " puts them on one");
  }
  return std::min(devices, world);
}

void settle_threads(PlanMachine& machine, const RunConfig& run, int world) {
  machine.profile.threads_of_rank = run.launch.threads;
  if (!threads_are_unpriced(machine.profile, world)) return;
  machine.notes.push_back("launch.threads: " + std::to_string(run.launch.threads) +
                          " is not in the times, which are those of ranks that use all cores: "
                          "rates by threads are not known (`sluice doctor` measures them here)");
}

void settle_device_budget(PlanMachine& machine, RunConfig& run) {
  const MachineProfile& profile = machine.profile;
  const std::int64_t card = profile.gpu ? profile.device_memory_bytes : 0;
  const std::int64_t context = profile.device_overhead_bytes;
  if (card > 0 && card <= context && run.memory.device == 0) {
    machine.notes.push_back("a card of " + profile.name + " has " + format_bytes(card) +
                            ", and the driver's context with the libraries takes about " +
                            format_bytes(context) + ": the card has no room for a step");
  }
  if (card == 0 || run.memory.device <= card) return;
  machine.notes.push_back("memory.device: " + format_bytes(run.memory.device) +
                          " is more than a card of " + profile.name +
                          " has; the budget is the card's " + format_bytes(card));
  run.memory.device = card;  // `train` checks the card's memory as well
}

PlanQuestion plan_question(const RunConfig& run, const RunPlace& place) {
  PlanQuestion question{engine_options(run, place), rank_budgets(run, place)};
  question.options.parallel.data = run.parallel.data;  // whether it was given
  question.options.generate_positions = sample_positions(run.model.seq, run.train.sample_tokens);
  return question;
}

SearchResult search_plans(Planner& planner, const RunConfig& run, const PlanQuestion& question) {
  SearchLimits limits;
  limits.meshes = true;
  limits.allowed = [&run](const EngineOptions& options) { return is_allowed(run, options); };
  SearchResult result = question.options.model.on_gpu ? suggest_for_gpus(planner, question, limits)
                                                      : suggest(planner, question, limits);
  suggest_bf16_states(planner, question, limits, result);
  suggest_bf16_reductions(planner, question, limits, result);
  suggest_unclipped(planner, question, limits, result);
  // Of 16-bit weights a note says so (hf_setup.cpp), but not that the run would fit.
  if (!result.any_fits || !widens_weights(run)) {
    suggest_bf16(planner.machine(), question, limits, result);
  }
  return result;
}

SearchResult search_this_host(Planner& planner, const RunConfig& run, const RunPlace& place) {
  constexpr std::int64_t kMiB = 1 << 20;
  const HostRoom room = host_room(run);
  const RunConfig inside = within(run, room, place);
  PlanQuestion question = plan_question(inside, place);
  if (!place.on_gpu) question.budgets.memory = memory_to_plan(room) / place.local_ranks;
  SearchResult result = search_plans(planner, run, question);
  if (run.memory.host > 0 || inside.memory.host < kMiB) return result;
  for (auto* const list : {&result.suggestions, &result.others}) {
    for (Suggestion& suggestion : *list) {  // second places fill the budget
      if (!has_second_places_on_host(suggestion.plan.shape)) continue;
      suggestion.set.push_back({"memory.host", std::to_string(inside.memory.host / kMiB) + "MiB"});
    }
  }
  return result;
}

std::string advice(const RunConfig& run, const RunPlace& place) {
  PlanMachine machine{named_profile("cpu"), true, {}};
  try {
    machine = find_machine("", run);
  } catch (const Error& error) {  // that the run does not fit is what its user must hear
    log_warning(std::string("no rates of this machine: ") + error.what());
  }
  if (machine.measure) {  // what is suggested should not depend on who else is at work
    machine.profile = named_profile("cpu");
    machine.notes = {"times are those of profile cpu: `sluice doctor` measures this machine"};
  }
  if (place.on_gpu) {
    const bool assumed = !machine.notes.empty();
    machine.notes = {"times are those of " +
                     (assumed ? "profile " + machine.profile.name : machine.profile.origin) +
                     "; memory is the GPUs' own where memory.device names none"};
  }
  machine.profile.devices_per_node = place.local_ranks;
  settle_threads(machine, run, place.world);
  Planner planner(machine.profile);
  std::optional<ProgressLine> progress(std::in_place, STDERR_FILENO,
                                       "looking for a configuration that fits");
  const SearchResult result = search_this_host(planner, run, place);
  progress.reset();
  std::string text = suggestions_text(result);
  for (const std::string& note : machine.notes) text += "note: " + note + "\n";
  text.pop_back();
  return text;
}

std::optional<RunRates> run_rates(const RunConfig& run, const RunPlace& place) {
  std::optional<MachineRates> measured;
  try {
    measured = find_machine_rates();
  } catch (const Error& error) {
    log_warning(std::string("no rates of this machine: ") + error.what());
  }
  if (place.on_gpu && !(measured && measured->gpu)) return std::nullopt;
  MachineProfile machine = place.on_gpu ? profile_like(*measured->gpu) : named_profile("cpu");
  if (measured) machine = measured_profile(*measured, machine);
  machine.devices_per_node = place.local_ranks;
  machine.threads_of_rank = run.launch.threads;
  RunRates rates;
  rates.rates = Planner(machine).rates(engine_options(run, place));
  if (!measured) rates.share_of_measured = machine.gemm_efficiency;
  rates.origin =
      measured ? machine.origin : "matrix products measured at the start, the rest of profile cpu";
  return rates;
}

}  // namespace sluice
