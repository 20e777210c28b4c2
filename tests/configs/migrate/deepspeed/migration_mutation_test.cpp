// The whole migration over thousands of damaged configurations: no crash, no silence.
#include <gtest/gtest.h>

#include <cstdlib>
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
const std::vector<std::string> kPieces{
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

// Keys of the file that are no sections, or empty ones.
std::size_t leaves(const migrate::HjsonNode& node, bool inside) {
  if (node.kind != migrate::HjsonNode::Kind::kObject || (inside && node.entries.empty())) return 1;
  std::size_t count = 0;
  for (const migrate::HjsonEntry& entry : node.entries) count += leaves(entry.value, true);
  return count;
}

bool is_on_top(const migrate::Migration& migration, const std::string& name) {
  for (const migrate::MigratedKey& key : migration.keys) {
    if (key.is_written && (key.path == name || key.path.starts_with(name + "."))) return true;
  }
  return false;
}

void migrate_bytes(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const migrate::HjsonDocument document = migrate::read_hjson(text);
  if (!document.problems.empty()) return;
  for (const int world : {0, 8}) {
    for (const std::int64_t hidden : {0, 64}) {
      migrate::Migration migration = migrate::migrate_deepspeed(
          document.root, {.file = "f", .parse = {.world = world}, .hidden = hidden, .layers = 12});
      std::size_t written = 0;
      for (const migrate::MigratedKey& key : migration.keys) {
        written += key.is_written ? 1 : 0;
        if (key.note.empty()) throw std::runtime_error(key.path + " has no note");
      }
      if (written > leaves(document.root, false)) throw std::runtime_error("a key is there twice");
      for (const migrate::HjsonEntry& entry : document.root.entries) {
        if (!is_on_top(migration, entry.key)) throw std::runtime_error(entry.key + " is not there");
      }
      if (migration.is_stopped()) continue;
      migrate::settle_allowed(migration, {});
      migrate::check_result(migration);
      for (const migrate::MigrationError& error : migration.errors) {
        // A world that the batch or the model does not fit, and unfit tensor ranks.
        const bool is_known = error.text.find("stops the migration") != std::string::npos ||
                              error.text.find("parallel.tensor") != std::string::npos ||
                              error.text.find("train.global_batch") != std::string::npos;
        if (!is_known) throw std::runtime_error(error.text);
      }
    }
  }
}

TEST(Mutation, DeepSpeedMigration) {
  run_mutations("deepspeed_config", migrate_bytes, kPieces, [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
