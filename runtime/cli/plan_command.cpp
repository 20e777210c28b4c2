// `sluice plan`: what a run would need and how long a step would take, on machines that need not be
// here. Allocates no weights, opens no data, starts nothing.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "configs/validate.hpp"
#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/run_setup.hpp"
#include "runtime/data/tokenizer.hpp"
#include "runtime/engine/machine.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/plan/plan_report.hpp"
#include "runtime/plan/planner.hpp"
#include "runtime/plan/search.hpp"

namespace sluice {
namespace {

constexpr int kDoesNotFit = 3;
constexpr char kDefaultGpu[] = "h100-sxm";

struct Machine {
  MachineProfile profile;
  bool measure = false;  // its matrix products, here and now
  std::vector<std::string> notes;
};

// A named profile, else what the doctor measured here, else the CPU profile.
Machine find_machine(const PlanCommand& command, const RunConfig& run) {
  if (!command.profile.empty()) return {named_profile(command.profile), false, {}};
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

int world_of(const PlanCommand& command, const RunConfig& run) {
  if (command.world > 0) return command.world;
  if (run.launch.nproc > 0) return run.launch.nproc;
  return command.profile.empty() && runs_on_gpu(run) ? std::max(1, visible_gpu_count()) : 1;
}

// A host of launch.nproc ranks, where the machine does not say.
int ranks_of_host(MachineProfile& machine, const RunConfig& run, int world) {
  if (machine.devices_per_node == 0) {
    machine.devices_per_node = run.launch.nproc > 0 ? std::min(run.launch.nproc, world) : world;
  }
  return std::min(machine.devices_per_node, world);
}

// Folders of drives that are not here are not looked for.
void validate_anywhere(LoadedConfig config, int world) {
  std::vector<std::string>& folders = config.run.offload.nvme_path;
  if (!folders.empty()) folders = {std::filesystem::temp_directory_path().string()};
  validate(config, world);
}

void settle_vocabulary(LoadedConfig& config) {
  std::int64_t& vocab = config.run.model.vocab;
  if (vocab > 0) return;
  const DataOptions& data = config.run.data;
  if (data.text.empty() && data.tokenizer == "bytes") {
    throw ConfigError(config.place("model.vocab") +
                      ": model.vocab: a plan does not read data.train to find its largest token; "
                      "give the vocabulary");
  }
  vocab = make_tokenizer(data.tokenizer)->vocab_size();
}

void settle_products(Machine& machine, LoadedConfig& config) {
  const bool on_gpu = machine.profile.gpu;
  RunConfig& run = config.run;
  // One thread's rate times the cores: a neighbour's load does not show in it.
  if (!on_gpu) set_libtorch_threads(1);
  (void)settle_matmul(config, on_gpu, [&] { return measure_matmul(run); });
  if (!machine.measure) return;
  const bool fp32 = run.model.matmul == MatmulType::kFp32 || run.train.dtype == DType::kFloat32;
  const DType dtype = fp32 ? DType::kFloat32 : run.train.dtype;
  const double rate =
      threads_per_rank(1) * measure_gemm_rate(dtype, at::Device(c10::DeviceType::CPU));
  (fp32 ? machine.profile.gemm_flops.fp32 : machine.profile.gemm_flops.bf16) = rate;
  machine.profile.peak_flops = machine.profile.gemm_flops;
}

std::string_view word(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::kFull:
      return "full";
    case RecomputeMode::kSelective:
      return "selective";
    case RecomputeMode::kNone:
      break;
  }
  return "none";
}

std::string_view word(ModelType type) {
  switch (type) {
    case ModelType::kGpt2:
      return "gpt2";
    case ModelType::kLlama:
      return "llama";
    case ModelType::kMistral:
      return "mistral";
    case ModelType::kQwen2:
      break;
  }
  return "qwen2";
}

RunFacts facts_of(const PlanCommand& command, const RunConfig& run, const Machine& machine) {
  RunFacts facts;
  facts.config = command.config;
  facts.model = word(run.model.type);
  facts.dtype = name_of(run.train.dtype);
  facts.recompute = word(run.recompute.mode);
  facts.order = run.train.accumulation_order == AccumulationOrder::kLayer ? "layer" : "micro";
  facts.machine = machine.profile.name;
  facts.rates_from = machine.profile.origin;
  facts.steps = run.train.steps;
  facts.endurance_bytes = static_cast<double>(command.endurance_bytes);
  facts.notes = machine.notes;
  return facts;
}

// Offload from GPUs is planned where nothing else fits: the runtime's copies are those of CPUs.
SearchResult search(Planner& planner, const PlanQuestion& question, RunFacts& facts) {
  SearchLimits limits;
  limits.offload = question.budgets.can_offload;
  SearchResult result = suggest(planner, question, limits);
  if (result.any_fits || limits.offload) return result;
  limits.offload = true;
  result = suggest(planner, question, limits);
  facts.notes.push_back(
      "suggestions with offload: are plans only; this version's memory tiers run on CPU ranks");
  return result;
}

}  // namespace

int run_plan(const PlanCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  Machine machine = find_machine(command, config.run);
  RunPlace place{.world = world_of(command, config.run), .on_gpu = machine.profile.gpu};
  validate_anywhere(config, place.world);
  place.local_ranks = ranks_of_host(machine.profile, config.run, place.world);
  settle_vocabulary(config);
  settle_products(machine, config);

  const PlanQuestion question{engine_options(config.run, place), rank_budgets(config.run, place)};
  RunFacts facts = facts_of(command, config.run, machine);
  Planner planner(machine.profile);
  const RunPlan plan = planner.plan(question);
  facts.hiding = hiding_tokens(
      plan.shape, planner.rates(question.options),
      question.options.train.micro_batch * question.options.dp * question.options.model.seq);
  SearchResult result;
  if (command.suggest) result = search(planner, question, facts);
  std::vector<FitRow> rows;
  if (command.compare) rows = compare(planner, question);
  std::string text;
  if (command.json) {
    text = report_json(plan, facts, command.suggest ? &result : nullptr,
                       command.compare ? &rows : nullptr);
  } else {
    text = report_text(plan, facts);
    if (command.compare) text += compare_text(rows);
    if (command.suggest) text += suggestions_text(result);
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return plan.fits() ? 0 : kDoesNotFit;
}

}  // namespace sluice
