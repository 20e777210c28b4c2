#include "configs/migrate/migrate.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "configs/migrate/launcher/accelerate_file.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/migrate/migrate_deepspeed_job.hpp"
#include "configs/migrate/migrate_megatron_job.hpp"
#include "configs/migrate/peers/fsdp.hpp"
#include "configs/migrate/peers/torchtitan.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

void check_sources(const MigrationRequest& request) {
  // The file of Megatron-DeepSpeed stands beside its arguments.
  const bool has_own_file = request.megatron.empty() && !request.deepspeed.empty();
  const std::array<std::pair<const char*, bool>, 3> alone{
      {{"--megatron", !request.megatron.empty()},
       {"--torchtitan", !request.torchtitan.empty()},
       {"a DeepSpeed configuration (or --launch, --accelerate, --trainer)",
        has_own_file ||
            !(request.launch.empty() && request.accelerate.empty() && request.trainer.empty())}}};
  std::string given;
  int count = 0;
  for (const auto& [name, is_given] : alone) {
    if (!is_given) continue;
    given += (count++ == 0 ? "" : " and ") + std::string(name);
  }
  if (count > 1) throw ConfigError(given + " are different sources; give one");
  const bool is_deepspeed =
      !request.deepspeed.empty() || (request.megatron.empty() && request.torchtitan.empty());
  if (!is_deepspeed && !request.from_version.empty()) {
    throw ConfigError("--from-version is DeepSpeed's; leave the flag out");
  }
  if (count == 0) {
    throw ConfigError(
        "no source: name a DeepSpeed configuration, or give --launch, --accelerate, "
        "--megatron or --torchtitan");
  }
}

// A default of the Trainer does not replace a key that the file gives.
void add_trainer(const MigrationRequest& request, Migration& result) {
  Migration beside{.file = result.file, .source = result.source};
  MigrationDraft beside_draft(beside);
  const TrainerValues values = trainer_values(request.trainer);
  TrainerContext context;
  context.has_deepspeed = false;
  context.world = result.world;
  context.hidden = request.hidden;
  context.steps = count_setting(request.set, "train.steps");
  map_trainer(values, context, beside_draft);
  result.errors.insert(result.errors.end(), values.errors.begin(), values.errors.end());
  result.notes.insert(result.notes.end(), values.notes.begin(), values.notes.end());
  absorb(std::move(beside), result);
}

// accelerate's file without DeepSpeed; nullopt where the file has DeepSpeed.
std::optional<Migration> migrate_fsdp_job(const MigrationRequest& request) {
  if (request.accelerate.empty() || !request.deepspeed.empty()) return std::nullopt;
  const std::string text = read_source("--accelerate", request.accelerate);
  if (read_accelerate_file(text, request.accelerate).distributed_type == "DEEPSPEED") {
    return std::nullopt;
  }
  if (!request.launch.empty()) {
    throw ConfigError(
        "--launch and an --accelerate file without DeepSpeed both name the ranks; "
        "give --accelerate alone");
  }
  Migration result = migrate_fsdp(text, {.file = request.accelerate,
                                         .world = request.world,
                                         .settings = request.set,
                                         .has_trainer = !request.trainer.empty()});
  if (!request.trainer.empty()) add_trainer(request, result);
  return result;
}

Migration from_source(const MigrationRequest& request) {
  if (!request.megatron.empty()) return migrate_megatron_job(request);
  if (!request.torchtitan.empty()) {
    return migrate_torchtitan(read_source("--torchtitan", request.torchtitan),
                              {.file = request.torchtitan,
                               .world = request.world,
                               .has_model = !request.model.empty(),
                               .settings = request.set});
  }
  if (auto fsdp = migrate_fsdp_job(request)) return std::move(*fsdp);
  return migrate_deepspeed_job(request);
}

bool splits_model(const MigrationDraft& draft) {
  for (const char* key : {"parallel.tensor", "parallel.pipeline"}) {
    const std::string* value = draft.value(key);
    if (value != nullptr && *value != "1") return true;
  }
  return false;
}

void add_ranks(const MigrationRequest& request, Migration& migration) {
  MigrationDraft draft(migration);
  const bool has_ranks =
      draft.value("launch.nproc") != nullptr || draft.value("launch.hostfile") != nullptr;
  if (migration.world == 0 && splits_model(draft)) {
    draft.missing("ranks of the job", "--world N");
  }
  if (migration.world == 0 || has_ranks) return;
  draft.set("", "launch.nproc", std::to_string(migration.world),
            request.world > 0 ? "--world" : "ranks of the source");
}

}  // namespace

Migration migrate(const MigrationRequest& request) {
  check_sources(request);
  Migration migration = from_source(request);
  if (!request.model.empty()) {
    MigrationDraft(migration).set("", "model.from", yaml_text(request.model), "--model");
  }
  if (migration.world == 0) migration.world = request.world;
  add_ranks(request, migration);
  apply_settings(migration, request.set);
  settle_allowed(migration, request.allowed);
  if (!migration.is_stopped()) check_result(migration);
  return migration;
}

}  // namespace sluice::migrate
