// The whole migration over thousands of damaged configurations: no crash, no silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"

namespace sluice::testing {
namespace {

// Fragments that reach the mapping of a key.
const std::vector<std::string> kMigrationPieces{
    "{",
    "}",
    ",",
    "\"auto\"",
    "null",
    "true",
    "-1",
    "0",
    "0.5",
    "1e18",
    "9223372036854775807",
    "\"stage\": 3,",
    "\"stage\": 2,",
    "\"ratio\": 0.5,",
    "\"cpu_offload\": true,",
    "\"offload_param\": {\"device\": \"cpu\"},",
    "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\"},",
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 1000},",
    "\"bf16\": {\"enabled\": true},",
    "\"fp16\": {\"enabled\": true, \"loss_scale\": 1e40},",
    "\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.1}},",
    "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 5}},",
    "\"optimizer\": {\"type\": \"Lion\", \"params\": {}},",
    "\"optimizer\": {\"type\": null},",
    "\"optimizer\": {\"type\": \"RAdam\", \"params\": {\"lr\": \"x\"}},",
    "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 5}},",
    "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 1e9}},",
    "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {}},",
    "\"scheduler\": {\"type\": \"StepLR\", \"params\": {\"x\": 1}},",
    "\"scheduler\": {\"params\": {}},",
    "\"tensor_parallel\": {\"autotp_size\": 3},",
    "\"gradient_accumulation_steps\": 3,",
    "\"train_batch_size\": 24,",
    "\"train_micro_batch_size_per_gpu\": 1,",
    "\"aio\": {\"block_size\": 1},",
    "\"pipeline\": {\"activation_checkpoint_interval\": 1},",
    "\"zero_optimization\": true,",
};

// Paths of the file's keys that are no sections, or empty ones.
void add_leaves(const migrate::HjsonNode& node, const std::string& path,
                std::vector<std::string>& leaves) {
  if (node.kind != migrate::HjsonNode::Kind::kObject || (!path.empty() && node.entries.empty())) {
    leaves.push_back(path);
    return;
  }
  for (const migrate::HjsonEntry& entry : node.entries) {
    add_leaves(entry.value, path.empty() ? entry.key : path + "." + entry.key, leaves);
  }
}

// True if the result has the key, or a section around the key that DeepSpeed does not know.
bool has_key(const migrate::Migration& migration, const std::string& leaf) {
  return std::any_of(migration.keys.begin(), migration.keys.end(), [&leaf](const auto& key) {
    return key.is_written && (key.path == leaf || leaf.starts_with(key.path + "."));
  });
}

void check_keys(const migrate::HjsonNode& root, const migrate::Migration& migration) {
  std::vector<std::string> leaves;
  add_leaves(root, "", leaves);
  std::size_t written = 0;
  for (const migrate::MigratedKey& key : migration.keys) {
    written += key.is_written ? 1 : 0;
    if (key.note.empty()) throw std::runtime_error(key.path + " has no note");
  }
  if (written > leaves.size()) throw std::runtime_error("a key is there twice");
  for (const std::string& leaf : leaves) {
    if (!has_key(migration, leaf)) throw std::runtime_error(leaf + " is not there");
  }
}

int finished = 0;  // migrations without an error

void migrate_bytes(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const migrate::HjsonDocument document = migrate::read_hjson(text);
  if (!document.problems.empty()) return;
  const migrate::DeepSpeedOptions nothing{.file = "f"};
  const migrate::DeepSpeedOptions everything{
      .file = "f",
      .parse = {.world = 8},
      .hidden = 64,
      .layers = 12,
      .set = {"train.micro_batch=2", "train.global_batch=64", "train.clip=1", "train.dtype=bf16",
              "optimizer.lr=1e-3", "optimizer.betas=[0.9, 0.99]", "optimizer.eps=1e-8",
              "optimizer.weight_decay=0.1", "schedule.warmup_steps=10", "train.steps=100"}};
  for (const migrate::DeepSpeedOptions& options : {nothing, everything}) {
    migrate::Migration migration = migrate::migrate_deepspeed(document.root, options);
    check_keys(document.root, migration);
    if (migration.is_stopped()) continue;
    migrate::settle_allowed(migration, {});
    migrate::apply_settings(migration, options.set);
    migrate::check_result(migration);
    for (const migrate::MigrationError& error : migration.errors) {
      // Sizes of the batch and of the model that other ranks do not fit.
      const bool is_known = error.text.find("stops the migration") != std::string::npos ||
                            error.text.find("parallel.tensor") != std::string::npos ||
                            error.text.find("train.global_batch") != std::string::npos;
      if (!is_known) throw std::runtime_error(error.text);
    }
    finished += migration.errors.empty() ? 1 : 0;
  }
}

TEST(Mutation, DeepSpeedMigration) {
  run_mutations("deepspeed_config", migrate_bytes, kMigrationPieces, [](std::string&) {});
  EXPECT_GE(finished, 200);
}

}  // namespace
}  // namespace sluice::testing
