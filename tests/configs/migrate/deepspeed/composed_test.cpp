// Results that have no error keep to all rules between Sluice's keys.
#include <gtest/gtest.h>

#include <random>

#include "configs/migrate/write_yaml.hpp"
#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Choices = std::vector<const char*>;

const std::vector<Choices> kChoices{
    {"", "\"gradient_accumulation_steps\": 3"},
    {"", "\"gradient_clipping\": 0", "\"gradient_clipping\": 0.5"},
    {"", "\"bf16\": {\"enabled\": true}", "\"fp16\": {\"enabled\": true, \"hysteresis\": 3}",
     "\"fp16\": {\"enabled\": true, \"loss_scale\": 64, \"min_loss_scale\": 4}",
     "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
     "\"bf16_optimizer_states\": true}"},
    {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, \"lr\": 1e-4}}",
     "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"weight_decay\": 0.1, "
     "\"fp32_optimizer_states\": false}}",
     "\"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0}}",
     "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.9}}"},
    {"", "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 1e-5}}",
     "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 50}}",
     "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 5000, "
     "\"warmup_max_lr\": 0}}",
     "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 1, "
     "\"cos_min_ratio\": 1, \"warmup_min_ratio\": 0.37}}"},
    {"", "\"aio\": {\"block_size\": 1, \"queue_depth\": 100000}",
     "\"aio\": {\"block_size\": 9e9, \"queue_depth\": 1}"},
    {"", "\"activation_checkpointing\": {\"cpu_checkpointing\": true}",
     "\"pipeline\": {\"activation_checkpoint_interval\": 4}"},
    {"", "\"tensor_parallel\": {\"autotp_size\": 2}", "\"tensor_parallel\": {\"autotp_size\": 4}"},
    {"", "\"tensorboard\": {\"enabled\": true}", "\"steps_per_print\": 0",
     "\"steps_per_print\": 9223372036854775807"},
};

const std::vector<Choices> kZero{
    {"\"stage\": 0", "\"stage\": 1", "\"stage\": 2", "\"stage\": 3"},
    {"", "\"offload_optimizer\": {\"device\": \"cpu\"}",
     "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}",
     "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\", \"super_offload\": "
     "true}",
     "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\", \"ratio\": 0}",
     "\"cpu_offload\": true"},
    {"", "\"offload_param\": {\"device\": \"cpu\"}",
     "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/a/\"}",
     "\"cpu_offload_param\": true"},
    {"", "\"reduce_bucket_size\": 1", "\"reduce_bucket_size\": 5e8"},
    {"", "\"stage3_prefetch_bucket_size\": 0", "\"stage3_prefetch_bucket_size\": 5e12"},
    {"", "\"stage3_param_persistence_threshold\": 9223372036854775807"},
};

std::string drawn(const std::vector<Choices>& choices, std::mt19937& random) {
  std::string text;
  for (const Choices& choice : choices) {
    const std::string part = choice[random() % choice.size()];
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

TEST(Composed, KeepsToSluicesRules) {
  std::mt19937 random(16);
  int checked = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string text = "{\"train_micro_batch_size_per_gpu\": 2, " + drawn(kChoices, random) +
                             ", \"zero_optimization\": {" + drawn(kZero, random) + "}}";
    SCOPED_TRACE(text);
    Migration migration = migrated(text, {.parse = {.world = 8}, .hidden = 768, .layers = 12});
    // Mistakes of DeepSpeed's own rules.
    if (migration.is_stopped()) continue;
    check_result(migration);
    ASSERT_EQ(errors_of(migration), std::vector<std::string>{});
    ++checked;
  }
  EXPECT_GE(checked, 700);
}

}  // namespace
}  // namespace sluice::migrate
