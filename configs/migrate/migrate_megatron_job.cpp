#include "configs/migrate/migrate_megatron_job.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "configs/migrate/migrate_deepspeed_job.hpp"
#include "configs/migrate/peers/megatron.hpp"

namespace sluice::migrate {
namespace {

Migration migrate_arguments(const MigrationRequest& request) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(request.megatron, error);
  return migrate_megatron(is_file ? read_source("--megatron", request.megatron) : request.megatron,
                          {.file = is_file ? request.megatron : "",
                           .world = request.world,
                           .settings = request.set,
                           .has_deepspeed_file = !request.deepspeed.empty()});
}

// The file as DeepSpeed reads it in this run: the arguments fill "auto" and what the file leaves
// open.
Migration migrate_file(const MigrationRequest& request, const Migration& arguments) {
  MigrationRequest file{.deepspeed = request.deepspeed,
                        .from_version = request.from_version,
                        .world = arguments.world,
                        .hidden = request.hidden,
                        .layers = request.layers};
  for (const ConfigLine& line : arguments.lines) {
    file.set.push_back(line.setting.key + "=" + line.setting.value);
  }
  file.set.insert(file.set.end(), request.set.begin(), request.set.end());
  return migrate_deepspeed_job(file);
}

bool is_of_program(std::string_view path) {
  return path.starts_with("optimizer") || path.starts_with("scheduler");
}

// Megatron-DeepSpeed gives DeepSpeed its own optimizer and schedule, which replace the file's.
void leave_to_arguments(Migration& file) {
  std::erase_if(file.lines, [](const ConfigLine& line) { return is_of_program(line.from); });
  std::erase_if(file.keys,
                [](const MigratedKey& key) { return is_of_program(key.path) && !key.is_written; });
  for (MigratedKey& key : file.keys) {
    if (!is_of_program(key.path)) continue;
    key.kind = KeyClass::kIgnored;
    key.stops = false;
    key.to.clear();
    key.note = "Megatron-DeepSpeed makes optimizer and schedule from the arguments";
  }
}

// Whose value holds where both sources write a setting.
enum class Decider { kFile, kArguments, kNeither };

Decider decider_of(std::string_view key) {
  // DeepSpeed's own work.
  for (const std::string_view section : {"zero.", "offload.", "loss_scale."}) {
    if (key.starts_with(section)) return Decider::kFile;
  }
  const bool must_agree = key == "train.micro_batch" || key == "train.global_batch" ||
                          key == "train.dtype" || key == "train.clip";
  return must_agree ? Decider::kNeither : Decider::kArguments;
}

bool is_written(const Migration& migration, const ConfigLine& line) {
  return std::any_of(migration.keys.begin(), migration.keys.end(), [&](const MigratedKey& key) {
    return key.path == line.from && key.is_written;
  });
}

// The file's line of mine's setting goes: `mine` gives the value.
void take_line(const ConfigLine& mine, Migration& file) {
  const Setting& setting = mine.setting;
  std::erase_if(file.lines,
                [&](const ConfigLine& line) { return line.setting.key == setting.key; });
  for (MigratedKey& key : file.keys) {
    const auto is_same = [&](const Setting& to) { return to.key == setting.key; };
    if (std::erase_if(key.to, is_same) == 0 || !key.to.empty()) continue;
    key.kind = KeyClass::kNotNeeded;
    key.note = mine.from + " gives " + setting.key + ": " + setting.value;
  }
}

// Settings that both sources give, with two values. Megatron-LM counts steps and samples by the
// batch sizes of its arguments, whether written or not.
void settle_contradictions(const Migration& arguments, const MigrationRequest& request,
                           Migration& file) {
  const std::vector<ConfigLine> lines = file.lines;
  for (const ConfigLine& mine : arguments.lines) {
    const std::string& key = mine.setting.key;
    const auto theirs = std::find_if(lines.begin(), lines.end(), [&](const ConfigLine& line) {
      return line.setting.key == key;
    });
    if (theirs == lines.end() || theirs->setting.value == mine.setting.value) continue;
    const Decider decider = decider_of(key);
    const bool is_mine = is_written(arguments, mine) || key.ends_with("_batch");
    if (decider == Decider::kFile || !is_mine || !is_written(file, *theirs)) continue;
    if (decider == Decider::kArguments) {
      take_line(mine, file);
    } else if (!setting_of(request.set, key)) {
      const std::string from = mine.from.empty() ? "the arguments" : mine.from;
      MigrationDraft(file).error(theirs->from, key + " is " + theirs->setting.value +
                                                   " here, and " + mine.setting.value + " by " +
                                                   from + "; make the two equal, or give --set " +
                                                   key + "=VALUE");
    }
  }
}

}  // namespace

Migration migrate_megatron_job(const MigrationRequest& request) {
  Migration result = migrate_arguments(request);
  if (request.deepspeed.empty() || !result.errors.empty()) return result;
  Migration file = migrate_file(request, result);
  leave_to_arguments(file);
  settle_contradictions(result, request, file);
  result.source = "Megatron-DeepSpeed";
  if (result.world == 0) result.world = file.world;
  absorb(std::move(file), result);
  return result;
}

}  // namespace sluice::migrate
