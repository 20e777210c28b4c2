// `sluice plan`: memory and step time of a run, for this or another machine. Allocates no weights,
// opens no data, starts no process.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "base/posix/atomic_file.hpp"
#include "configs/validate.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/machine_room.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/cli/setup/rank_setup.hpp"
#include "runtime/cli/setup/saving_setup.hpp"
#include "runtime/cli/setup/train_setup.hpp"
#include "runtime/engine/graph_choice.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/observe/progress_line.hpp"
#include "runtime/plan/page/html_page.hpp"
#include "runtime/plan/search/search_text.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/graph_segments.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {

constexpr int kDoesNotFit = 3;

int world_of(const PlanCommand& command, const RunConfig& run) {
  if (command.world > 0) return command.world;
  if (run.launch.nproc > 0) return run.launch.nproc;
  return command.profile.empty() && runs_on_gpu(run) ? std::max(1, visible_gpu_count()) : 1;
}

void settle_products(PlanMachine& machine, LoadedConfig& config) {
  const bool on_gpu = machine.profile.gpu;
  RunConfig& run = config.run;
  // One thread's rate times the cores: a neighbour's load does not show in it.
  if (!on_gpu) set_libtorch_threads(1);
  (void)settle_matmul(config, on_gpu, [&] { return measure_matmul(run); });
  if (!machine.measure) return;
  const bool fp32 = run.model.matmul != MatmulType::kNative || run.train.dtype == DType::kFloat32;
  const DType dtype = fp32 ? DType::kFloat32 : run.train.dtype;
  const double rate =
      threads_per_rank(1) * measure_gemm_rate(dtype, at::Device(c10::DeviceType::CPU));
  (fp32 ? machine.profile.gemm_flops.fp32 : machine.profile.gemm_flops.bf16) = rate;
  machine.profile.peak_flops = machine.profile.gemm_flops;
}

RunFacts facts_of(const PlanCommand& command, const RunConfig& run, const PlanMachine& machine) {
  RunFacts facts;
  facts.config = command.config;
  facts.model = hf_type_name(run.model.type);
  facts.dtype = name_of(run.train.dtype);
  facts.recompute = name_of(run.recompute.mode);
  facts.order = run.train.accumulation_order == AccumulationOrder::kLayer ? "layer" : "micro";
  facts.machine = machine.profile.name;
  facts.rates_from = machine.profile.origin;
  facts.steps = run.train.steps;
  facts.tokens = command.tokens;
  facts.endurance_bytes = static_cast<double>(command.endurance_bytes);
  facts.notes = machine.notes;
  return facts;
}

// `said`: notes already printed to standard error. The page and the JSON repeat them.
void write_page_and_json(const PlanCommand& command, const RunPlan& plan, RunFacts facts,
                         const std::vector<std::string>& said, const SearchResult* result,
                         const std::vector<FitRow>* rows) {
  facts.notes.insert(facts.notes.end(), said.begin(), said.end());
  if (!command.html.empty()) {
    write_output_file(command.html, plan_html(plan, facts, result, rows));
  }
  if (command.json) print_beside(command.html, report_json(plan, facts, result, rows));
}

// On a GPU.
std::string describe_graphs(const EngineOptions& options, const RunPlan& plan) {
  const std::string why_not = why_no_graphs(options, micro_batches_of(options));
  if (!why_not.empty()) return "no CUDA graphs: " + why_not;
  const std::size_t graphs = graph_segments(plan.program).size();
  return "CUDA graphs: the compute of a step is recorded in the second step and launched as " +
         std::to_string(graphs) + (graphs == 1 ? " graph" : " graphs");
}

// Empty: all updates follow the norm.
std::string describe_updates(const Program& program) {
  const auto early = std::count_if(program.ops.begin(), program.ops.end(),
                                   [](const Op& op) { return op.in_backward; });
  if (early == 0) return "";
  return "train.clip is 0: " + std::to_string(early) +
         " groups of parameters are updated in the backward, which frees their gradients there";
}

// What the times of a run with train.matmul: fp8 assume.
std::string describe_fp8(const MachineProfile& machine) {
  const std::string key = "train.matmul: fp8: ";
  if (!machine.gpu) {
    return key + "a CPU multiplies the rounded values in fp32; the times leave the rounding out";
  }
  if (machine.gemm_flops.fp8 == 0) {
    return key + "the profile has no gemm_flops.fp8, so blocks are priced as in bf16";
  }
  return key +
         "products of blocks at the profile's gemm_flops.fp8, operands rounded at the rate of "
         "device memory";
}

// Whether the plan is this machine's: a run for GPUs may be planned where none is.
bool is_of_this_machine(const PlanCommand& command, const RunPlace& place) {
  return command.profile.empty() && (!place.on_gpu || visible_gpu_count() > 0);
}

bool has_state_on_host(const OffloadOptions& offload) {
  for (const Tier tier :
       {offload.optimizer, offload.gradients, offload.parameters, offload.activations}) {
    if (tier == Tier::kHost) return true;
  }
  return offload.optimizer == Tier::kNvme && offload.host_fraction > 0;
}

// Whole groups fill the share, so a small one may stay nearly empty. Empty: it does not.
std::string describe_host_share(const OffloadOptions& offload, const StepShape& shape) {
  if (offload.optimizer != Tier::kNvme || offload.host_fraction <= 0) return "";
  double all = 0, on_host = 0, largest = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const auto elems = static_cast<double>(off_device_elems(shape, g));
    all += elems;
    largest = std::max(largest, elems);
    if (nth(shape.groups, g).states_on_host) on_host += elems;
  }
  if (all == 0 || on_host >= offload.host_fraction / 2 * all) return "";
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "offload.host_fraction: only whole groups of states are on the host, which makes "
                "%.2g in place of %.2g; the largest group is %.2g",
                on_host / all, offload.host_fraction, largest / all);
  return text.data();
}

}  // namespace

int run_plan(const PlanCommand& command) {
  LoadedConfig config = load_config(command.config, command.overrides);
  settle_model_from(config, "never", false);
  PlanMachine machine = find_machine(command.profile, config.run);
  RunPlace place{.world = world_of(command, config.run),
                 .on_gpu = machine.profile.gpu,
                 .gpu = gpu_figures(machine.profile)};
  validate(config, place.world, std::nullopt, Purpose::kPlan);
  if (command.profile.empty()) note_hidden_gpus(config);
  print_notes(config);
  if (place.on_gpu) {
    check_gpu_documents(config);
    check_gpu_attention(config);
    check_gpu_matmul(config, machine.profile.compute_capability);
  }
  place.local_ranks = ranks_of_host(machine, config.run, place.world);
  settle_threads(machine, config.run, place.world);
  settle_device_budget(machine, config.run);
  settle_planned_vocabulary(config);
  settle_products(machine, config);

  RunFacts facts = facts_of(command, config.run, machine);
  std::optional<ProgressLine> progress(std::in_place, STDERR_FILENO, "planning");
  Planner planner(machine.profile);
  const PlanQuestion question = plan_question(config.run, place);
  const RunPlan plan = planner.plan(question);
  facts.hiding = hiding_tokens(
      plan.shape, planner.rates(planner.at_stage(question.options, plan.stage)),
      question.options.train.micro_batch * question.options.dp * question.options.model.seq,
      question.options.train.accumulation_order);
  const bool here = is_of_this_machine(command, place);
  if (here && ranks_here(config.run, place.local_ranks).count == 0) {
    facts.notes.push_back("launch.hostfile: memory and disks of its hosts are not checked here");
  }
  if (here) {
    facts.shortages = shortages(host_room(config.run), plan.node.peak, config.run, place);
  } else if (config.run.memory.host == 0 && has_state_on_host(config.run.offload)) {
    facts.notes.push_back("host memory is unlimited in this plan; give memory.host");
  }
  if (place.on_gpu) {
    facts.notes.push_back(describe_graphs(planner.at_stage(question.options, plan.stage), plan));
    const std::string updates = describe_updates(plan.program);
    if (!updates.empty()) facts.notes.push_back(updates);
  }
  if (config.run.model.matmul == MatmulType::kFp8) {
    facts.notes.push_back(describe_fp8(machine.profile));
  }
  const std::string share = describe_host_share(config.run.offload, plan.shape);
  if (!share.empty()) facts.notes.push_back(share);
  facts.notes.push_back(describe_saving(config, place));
  progress.reset();
  // A search may take minutes: a reader has the plan before it.
  if (!command.json) print_beside(command.html, report_text(plan, facts));
  std::optional<std::vector<FitRow>> rows;
  if (command.compare) {
    progress.emplace(STDERR_FILENO, "planning every tier and stage");
    rows = compare(planner, question);
    progress.reset();
    if (!command.json) print_beside(command.html, compare_text(*rows));
  }
  std::optional<SearchResult> result;
  if (command.suggest) {
    progress.emplace(STDERR_FILENO, "searching faster settings");
    result = here ? search_this_host(planner, config.run, place)
                  : search_plans(planner, config.run, question);
    progress.reset();
    if (!command.json) print_beside(command.html, suggestions_text(*result));
  }
  const bool fits = plan.fits() && facts.shortages.empty();
  write_page_and_json(command, plan, std::move(facts), config.notes, result ? &*result : nullptr,
                      rows ? &*rows : nullptr);
  return fits ? 0 : kDoesNotFit;
}

}  // namespace sluice
