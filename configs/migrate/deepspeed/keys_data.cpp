// Rows of data_efficiency, and of the keys that DeepSpeed 0.19.7 and 0.19.8 removed.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_sampling_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "Sluice has no curriculum and no dynamic batches";
  constexpr std::string_view kLoader = "Sluice's data reader has its own threads and memory";
  t.section("data_efficiency", Unknown::kIgnores, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused,
        "Sluice has no curriculum, no dynamic batches and no random layer-token drop");
  t.key("seed", kInt, "1234", kNotNeeded, "train.seed decides the order of data");
  t.section("data_efficiency.data_sampling", Unknown::kIgnores, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused, kWhy);
  t.key("num_epochs", kInt, "1000", kNotNeeded, kLoader);
  t.key("num_workers", kInt, "0", kNotNeeded, kLoader);
  t.key("pin_memory", kBool, "false", kNotNeeded, kLoader);
  t.section("data_efficiency.data_sampling.curriculum_learning", Unknown::kTakes, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused, kWhy);
  t.key("data_cluster_path", kText, "null", kNotNeeded, kWhy);
  t.key("curriculum_metrics", kObject, "null", kNotNeeded, kWhy);
  t.section("data_efficiency.data_sampling.dynamic_batching", Unknown::kTakes, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused, kWhy);
  t.key("metrics_path", kText, "null", kNotNeeded, kWhy);
  t.key("lr_scaling_method", kChoice, "\"linear\"", kNotNeeded, kWhy)
      .choices({"linear", "sqrt", "none"});
  t.key("min_batch_size", kInt, "1", kNotNeeded, kWhy).checked();
  t.key("max_batch_size", kInt, "null", kNotNeeded, kWhy).checked();
  t.key("sequence_picking_order", kChoice, "\"dataloader\"", kNotNeeded, kWhy)
      .choices({"random", "seqlen", "dataloader"});
  t.key("max_tokens", kInt, "null", kNotNeeded, kWhy);
  t.key("verbose", kBool, "false", kNotNeeded, kWhy);
}

static void add_routing_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "Sluice has no random layer-token drop";
  t.section("data_efficiency.data_routing", Unknown::kIgnores, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused, kWhy);
  t.section("data_efficiency.data_routing.random_ltd", Unknown::kTakes, kRefused, kWhy);
  t.key("enabled", kBool, "false", kRefused, kWhy);
  for (const std::string_view name : {"total_layer_num", "random_ltd_layer_num",
                                      "micro_batch_size", "global_batch_size"}) {
    t.key(name, kInt, "null", kNotNeeded, kWhy);
  }
  for (const std::string_view name : {"model_mask_name", "model_type", "hidden_state_order"}) {
    t.key(name, kText, "null", kNotNeeded, kWhy);
  }
  t.key("random_ltd_layer_id", kList, "null", kNotNeeded, kWhy);
  t.key("random_ltd_schedule", kObject, "null", kNotNeeded, kWhy);
  t.key("layer_token_lr_schedule", kObject, "{\"enabled\": false}", kNotNeeded, kWhy);
}
// clang-format on

void add_data_keys(KeyTable& table) {
  add_sampling_keys(table);
  add_routing_keys(table);
}

void add_removed_keys(KeyTable& table) {
  constexpr DeepSpeedVersion kFirst{0, 19, 7};
  constexpr DeepSpeedVersion kSecond{0, 19, 8};
  // clang-format off
  table.top_level();
  table.key("nebula", kObject, "{}", kRemoved, "Nebula checkpoints").removed(kFirst);
  table.key("compression_training", kObject, "{}", kRemoved, "compression").removed(kFirst);
  table.key("quantize_training", kObject, "{}", kRemoved, "mixture of quantization")
      .removed(kFirst);
  table.key("sparse_attention", kObject, "{}", kRemoved, "sparse attention").removed(kFirst);
  table.key("amp", kObject, "{}", kRemoved, "Apex AMP").removed(kSecond);
  table.key("sparse_gradients", kBool, "false", kRemoved, "sparse gradients of dense embeddings")
      .removed(kSecond);
  table.key("eigenvalue", kObject, "{}", kRemoved, "eigenvalues of mixture of quantization")
      .removed(kSecond);
  table.key("elasticity", kObject, "{}", kRemoved, "elastic training").removed(kSecond);
  table.key("graph_harvesting", kBool, "false", kRemoved, "CUDA graphs of the BF16 optimizer")
      .removed(kSecond);
  table.key("curriculum_learning", kObject, "{}", kRemoved, "legacy curriculum learning")
      .removed(kSecond);
  table.key("progressive_layer_drop", kObject, "{}", kRemoved, "progressive layer drop")
      .removed(kSecond);
  table.key("zero_optimization.mics_shard_size", kInt, "-1", kRemoved, "MiCS").removed(kFirst);
  table.key("zero_optimization.mics_hierarchical_params_gather", kBool, "false", kRemoved, "MiCS")
      .removed(kFirst);
  table.key("zero_optimization.zeropp_loco_param", kObject, "null", kRemoved,
            "LoCo error feedback of ZeRO++").removed(kSecond).since({0, 16, 2});
  // clang-format on
}

}  // namespace sluice::migrate
