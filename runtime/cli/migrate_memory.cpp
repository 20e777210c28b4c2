#include "runtime/cli/migrate_memory.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "configs/schema.hpp"
#include "configs/validate.hpp"
#include "runtime/cli/setup/plan_setup.hpp"
#include "runtime/cli/setup/train_setup.hpp"

namespace sluice {
namespace {

using migrate::Migration;
using migrate::PlannedMemory;

// Keys that decide where bytes live. Each is left out of one plan.
constexpr std::array<std::string_view, 11> kMemoryKeys{
    "zero.stage",           "zero.bucket_bytes",   "zero.prefetch_units",
    "zero.persist_below",   "offload.parameters",  "offload.optimizer",
    "offload.gradients",    "offload.activations", "offload.device_fraction",
    "offload.states_dtype", "recompute.mode"};

class MigrationPlanner {
 public:
  MigrationPlanner(const LoadedConfig& config, int world)
      : machine_(find_machine("", config.run)), planner_(machine_.profile), world_(world) {}

  PlannedMemory plan(LoadedConfig config, std::string of) {
    PlannedMemory memory{.of = std::move(of), .problem = {}};
    try {
      validate(config, world_, std::nullopt, Purpose::kPlan);
      settle_planned_vocabulary(config);
      const RunPlan plan = planner_.plan(plan_question(
          config.run, {.world = world_, .local_ranks = world_, .on_gpu = machine_.profile.gpu}));
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

}  // namespace

void plan_migration(const LoadedConfig& config, Migration& migration) {
  MigrationPlanner planner(config, std::max(1, migration.world));
  migration.memory.push_back(planner.plan(config, "the result"));
  if (!migration.memory.front().problem.empty()) return;
  for (const std::string_view name : kMemoryKeys) {
    const Key* key = find_key(name);
    const auto line =
        std::find_if(migration.lines.begin(), migration.lines.end(),
                     [&](const migrate::ConfigLine& given) { return given.setting.key == name; });
    const Value usual = key->get(RunConfig{});
    if (line == migration.lines.end() || key->get(config.run) == usual) continue;
    LoadedConfig without = config;
    key->set(without.run, usual);
    migration.memory.push_back(
        planner.plan(without, "without " + line->setting.key + ": " + line->setting.value));
  }
}

}  // namespace sluice
