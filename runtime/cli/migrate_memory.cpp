#include "runtime/cli/migrate_memory.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "configs/schema.hpp"
#include "configs/validate.hpp"
#include "configs/value.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/cli/setup/train_setup.hpp"

namespace sluice {
namespace {

using migrate::Migration;
using migrate::PlannedMemory;

// Settings that decide where bytes live. Each group is left out of one plan, since Sluice refuses
// some of its keys alone.
struct MemoryGroup {
  std::string_view name;
  std::vector<std::string_view> keys;
};

const std::vector<MemoryGroup>& memory_groups() {
  static const std::vector<MemoryGroup> groups{
      {"offload.parameters", {"offload.parameters"}},
      {"offload.gradients", {"offload.gradients"}},
      {"offload",
       {"offload.parameters", "offload.optimizer", "offload.gradients", "offload.device_fraction",
        "offload.host_fraction", "offload.speculate"}},
      {"offload.states_dtype", {"offload.states_dtype"}},
      {"offload.device_fraction", {"offload.device_fraction"}},
      {"recompute.mode", {"recompute.mode", "offload.activations"}},
      {"zero.bucket_bytes", {"zero.bucket_bytes"}},
      {"zero.prefetch_units", {"zero.prefetch_units"}},
      {"zero.persist_below", {"zero.persist_below"}},
  };
  return groups;
}

class MigrationPlanner {
 public:
  MigrationPlanner(const LoadedConfig& config, int world)
      : machine_(find_machine("", config.run)), planner_(machine_.profile), world_(world) {}

  PlannedMemory plan(LoadedConfig config, std::string of) {
    PlannedMemory memory{.of = std::move(of), .problem = {}};
    try {
      validate(config, world_, std::nullopt, Purpose::kPlan);
      settle_planned_vocabulary(config);
      const RunPlace place{.world = world_,
                           .local_ranks = world_,
                           .on_gpu = machine_.profile.gpu,
                           .gpu = gpu_figures(machine_.profile)};
      const RunPlan plan = planner_.plan(plan_question(config.run, place));
      memory.device = plan.peak(Tier::kDevice);
      memory.host = plan.peak(Tier::kHost);
      memory.nvme = plan.peak(Tier::kNvme);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      memory.problem = text.substr(0, text.find('\n'));
    }
    return memory;
  }

 private:
  PlanMachine machine_;
  Planner planner_;
  int world_;
};

// "the result: stage 3, optimizer on nvme, parameters on host"
std::string describe(const RunConfig& run) {
  std::string text = "the result: stage " + std::to_string(run.zero.stage);
  for (const char* key : {"offload.optimizer", "offload.parameters", "offload.gradients"}) {
    const Key* entry = find_key(key);
    const std::string tier = write_value(entry->rules, entry->get(run));
    if (tier != "device") text += ", " + std::string(entry->name) + " on " + tier;
  }
  return text;
}

// The run with a group's keys at their defaults; nullopt if they have these already.
std::optional<LoadedConfig> without(const LoadedConfig& config, const MemoryGroup& group) {
  LoadedConfig changed = config;
  bool differs = false;
  for (const std::string_view name : group.keys) {
    const Key* key = find_key(name);
    const Value usual = key->get(RunConfig{});
    differs = differs || key->get(config.run) != usual;
    key->set(changed.run, usual);
  }
  return differs ? std::optional(changed) : std::nullopt;
}

}  // namespace

void plan_migration(const LoadedConfig& config, Migration& migration) {
  MigrationPlanner planner(config, std::max(1, migration.world));
  const PlannedMemory result = planner.plan(config, describe(config.run));
  migration.memory.push_back(result);
  if (!result.problem.empty()) return;
  for (const MemoryGroup& group : memory_groups()) {
    const auto changed = without(config, group);
    if (!changed) continue;
    PlannedMemory plan = planner.plan(*changed, "without " + std::string(group.name));
    const bool is_same = plan.device == result.device && plan.host == result.host &&
                         plan.nvme == result.nvme && plan.problem.empty();
    if (!is_same && plan.problem.empty()) migration.memory.push_back(std::move(plan));
  }
}

}  // namespace sluice
