#include "runtime/cli/plan_setup.hpp"

#include <algorithm>

#include "configs/parallel_rules.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "runtime/engine/generator.hpp"
#include "runtime/plan/plan_report.hpp"

namespace sluice {
namespace {

constexpr char kDefaultGpu[] = "h100-sxm";

// By the rules between a mesh, the model and what leaves the device.
bool is_allowed(const RunConfig& run, const EngineOptions& options) {
  RunConfig other = run;
  other.model = options.model;
  other.parallel = options.parallel;
  other.offload = options.offload;
  other.train.accumulation_order = options.train.accumulation_order;
  return broken_parallel_rules(other).empty();
}

}  // namespace

PlanMachine find_machine(const std::string& profile, const RunConfig& run) {
  if (!profile.empty()) return {named_profile(profile), false, {}};
  if (runs_on_gpu(run)) {
    return {named_profile(kDefaultGpu),
            false,
            {std::string("no --profile was given: ") + kDefaultGpu + " is assumed of these GPUs"}};
  }
  MachineProfile base = named_profile("cpu");
  if (const auto rates = find_machine_rates()) return {measured_profile(*rates, base), false, {}};
  base.name = "this machine";
  base.origin = "matrix products measured now, the rest of profile cpu";
  return {base, true, {"`sluice doctor` measures this machine once, for better times"}};
}

int ranks_of_host(MachineProfile& machine, const RunConfig& run, int world) {
  if (machine.devices_per_node == 0) {
    machine.devices_per_node = run.launch.nproc > 0 ? std::min(run.launch.nproc, world) : world;
  }
  return std::min(machine.devices_per_node, world);
}

PlanQuestion plan_question(const RunConfig& run, const RunPlace& place) {
  PlanQuestion question{engine_options(run, place), rank_budgets(run, place)};
  question.options.parallel.data = run.parallel.data;  // whether it was given
  question.options.generate_positions = sample_positions(run.model.seq, run.train.sample_tokens);
  return question;
}

SearchResult search_plans(Planner& planner, const RunConfig& run, const PlanQuestion& question,
                          std::vector<std::string>& notes) {
  SearchLimits limits;
  limits.offload = question.budgets.can_offload;
  limits.meshes = true;
  limits.allowed = [&run](const EngineOptions& options) { return is_allowed(run, options); };
  SearchResult result = suggest(planner, question, limits);
  if (result.any_fits || limits.offload) return result;
  limits.offload = true;
  result = suggest(planner, question, limits);
  notes.emplace_back(
      "suggestions with offload: are plans only; this version's memory tiers run on CPU ranks");
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
    machine.notes = {"times, and memory where memory.device names none, are those of profile " +
                     machine.profile.name};
  }
  machine.profile.devices_per_node = place.local_ranks;
  Planner planner(machine.profile);
  const SearchResult result = search_plans(planner, run, plan_question(run, place), machine.notes);
  std::string text = suggestions_text(result);
  for (const std::string& note : machine.notes) text += "note: " + note + "\n";
  text.pop_back();
  return text;
}

std::optional<RunRates> run_rates(const RunConfig& run, const RunPlace& place) {
  if (place.on_gpu) return std::nullopt;
  MachineProfile machine = named_profile("cpu");
  std::optional<MachineRates> measured;
  try {
    measured = find_machine_rates();
  } catch (const Error& error) {
    log_warning(std::string("no rates of this machine: ") + error.what());
  }
  if (measured) machine = measured_profile(*measured, machine);
  machine.devices_per_node = place.local_ranks;
  RunRates rates;
  rates.rates = Planner(machine).rates(engine_options(run, place));
  if (!measured) rates.share_of_measured = machine.gemm_efficiency;
  rates.origin =
      measured ? machine.origin : "matrix products measured at the start, the rest of profile cpu";
  return rates;
}

}  // namespace sluice
