#include "configs/migrate/peers/torchtitan_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/counted.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

struct Flavor {
  std::string_view name;
  std::int64_t hidden, layers, heads, kv_heads;
  double multiplier;  // of the feed-forward width
  std::int64_t multiple_of;
  std::int64_t vocab;
};

constexpr std::array kFlavors{Flavor{"debugmodel", 256, 6, 16, 16, 1.0, 256, 2048},
                              Flavor{"8B", 4096, 32, 32, 8, 1.3, 1024, 128256},
                              Flavor{"70B", 8192, 80, 64, 8, 1.3, 4096, 128256},
                              Flavor{"405B", 16384, 126, 128, 8, 1.2, 4096, 128256}};

std::int64_t ffn_of(const Flavor& flavor) {
  const std::int64_t third = 4 * flavor.hidden * 2 / 3;
  const auto width = static_cast<std::int64_t>(flavor.multiplier * static_cast<double>(third));
  return (width + flavor.multiple_of - 1) / flavor.multiple_of * flavor.multiple_of;
}

class TorchtitanMap {
 public:
  TorchtitanMap(const TorchtitanValues& values, PeerMap& map, int world, bool has_model)
      : v_(values), map_(map), world_(world), has_model_(has_model) {}

  void run() {
    model();
    ranks();
    zero();
    batch();
    optimizer();
    schedule();
    checkpoint();
    recompute();
    output();
  }

 private:
  void set_number(std::string_view from, std::string_view key) {
    map_.set(from, key, format_number(v_.number(from)));
  }

  void model() {
    set_number("training.seq_len", "model.seq");
    if (v_.flag("checkpoint.enable") && v_.flag("checkpoint.initial_load_in_hf") &&
        !v_.is_null("checkpoint.initial_load_path")) {
      map_.set("checkpoint.initial_load_path", "model.from",
               yaml_text(v_.text("checkpoint.initial_load_path")));
      map_.set("checkpoint.initial_load_in_hf", "model.from",
               yaml_text(v_.text("checkpoint.initial_load_path")));
      return;
    }
    if (v_.text("model.name") != "llama3") {
      if (has_model_) return sizes_of_folder("model.name");
      return map_.stop("model.name", "no sizes of " + v_.text("model.name") +
                                         " are known: give a folder with --model");
    }
    const Flavor* const flavor = find_flavor();
    if (flavor == nullptr) {
      if (has_model_) return sizes_of_folder("model.flavor");
      return map_.stop("model.flavor", "no sizes of the flavor " + v_.text("model.flavor") +
                                           " are known: give a folder with --model");
    }
    map_.set("model.name", "model.type", "llama");
    const std::array<std::pair<std::string_view, std::string>, 11> sizes{{
        {"model.layers", std::to_string(flavor->layers)},
        {"model.hidden", std::to_string(flavor->hidden)},
        {"model.heads", std::to_string(flavor->heads)},
        {"model.kv_heads", std::to_string(flavor->kv_heads)},
        {"model.ffn", std::to_string(ffn_of(*flavor))},
        {"model.vocab", std::to_string(flavor->vocab)},
        {"model.tie_embeddings", "false"},
        {"model.norm_eps", "1e-05"},
        {"model.rope_theta", "500000"},
        {"model.rope_scaling", "llama3"},
        {"model.rope_factor", "8"},
    }};
    for (const auto& [key, value] : sizes) map_.set("model.flavor", key, value);
    map_.changed("model.flavor",
                 "fresh weights of each block have a standard deviation of its own depth there, of "
                 "all blocks here");
  }

  // Sluice has no table of these sizes, and needs none.
  void sizes_of_folder(std::string_view from) {
    map_.reclass(from, KeyClass::kMapped, "model.from: the folder of --model has the sizes");
  }

  void ranks() {
    const std::int64_t tensor = v_.count("parallelism.tensor_parallel_degree");
    set_number("parallelism.tensor_parallel_degree", "parallel.tensor");
    if (tensor > 1) map_.set("parallelism.tensor_parallel_degree", "parallel.sequence", "true");
    set_number("parallelism.pipeline_parallel_degree", "parallel.pipeline");
    if (stages() < 2) return;
    const std::string& order = v_.text("parallelism.pipeline_parallel_schedule");
    if (order == "1F1B" || order == "GPipe") {
      map_.set("parallelism.pipeline_parallel_schedule", "parallel.schedule",
               order == "GPipe" ? "gpipe" : "1f1b");
    } else if (order == "Interleaved1F1B") {
      map_.set("parallelism.pipeline_parallel_schedule", "parallel.schedule", "interleaved");
      virtual_stages();
    } else {
      map_.stop("parallelism.pipeline_parallel_schedule",
                "no order " + order + ": GPipe, 1F1B and Interleaved1F1B are there");
    }
  }

  // torchtitan counts the embedding and the loss head as layers.
  void virtual_stages() {
    constexpr std::string_view kLayers = "parallelism.pipeline_parallel_layers_per_stage";
    if (v_.is_null(kLayers)) {
      return map_.set("parallelism.pipeline_parallel_schedule", "parallel.virtual_stages", "2");
    }
    const Flavor* const flavor = find_flavor();
    if (flavor == nullptr) {
      return map_.stop(kLayers, "the layers of " + v_.text("model.flavor") + " are not known here",
                       "leave the key out, and give --set parallel.virtual_stages=N");
    }
    const std::int64_t each = v_.count(kLayers);
    const std::int64_t layers = flavor->layers +
                                v_.count("parallelism.pipeline_parallel_first_stage_less_layers") +
                                v_.count("parallelism.pipeline_parallel_last_stage_less_layers");
    const std::int64_t pieces = each > 0 ? layers / each + (layers % each != 0 ? 1 : 0) : 0;
    if (pieces % stages() != 0 || pieces / stages() < 2) {
      return map_.error(kLayers, counted(layers, "layer") + " (embedding and head counted) in " +
                                     "pieces of " + std::to_string(each) + " make " +
                                     counted(pieces, "piece") +
                                     "; torchtitan needs the same number, two or more, for each "
                                     "of " +
                                     std::to_string(stages()) + " ranks; change the number");
    }
    map_.set(kLayers, "parallel.virtual_stages", std::to_string(pieces / stages()));
    map_.reclass(kLayers, KeyClass::kMapped,
                 "parallel.virtual_stages: pieces of each rank; each piece is cut by FLOP");
  }

  // nullptr where the table has no sizes.
  [[nodiscard]] const Flavor* find_flavor() const {
    const auto* const found =
        std::find_if(kFlavors.begin(), kFlavors.end(),
                     [&](const Flavor& each) { return each.name == v_.text("model.flavor"); });
    return v_.text("model.name") == "llama3" && found != kFlavors.end() ? found : nullptr;
  }

  [[nodiscard]] std::int64_t stages() const {
    return v_.count("parallelism.pipeline_parallel_degree");
  }

  // FSDP, DDP or neither.
  void zero() {
    constexpr std::string_view kShard = "parallelism.data_parallel_shard_degree";
    constexpr std::string_view kReplicate = "parallelism.data_parallel_replicate_degree";
    constexpr std::string_view kReshard = "parallelism.fsdp_reshard_after_forward";
    const std::int64_t shard = v_.count(kShard);
    const std::int64_t replicas = v_.count(kReplicate);
    const bool shards = shard != 1;
    if (shards && replicas > 1) {
      map_.stop(kReplicate, "groups of ranks hold all states there; data ranks shard as one group");
    }
    const std::string& reshard = v_.text(kReshard);
    const bool keeps = reshard == "never" || (reshard == "default" && stages() > 1);
    const std::string stage = !shards ? "0" : keeps ? "2" : "3";
    map_.set(kShard, "zero.stage", stage);
    if (shards) {
      map_.set(kReshard, "zero.stage", stage);
      if (keeps) {
        map_.changed(kReshard,
                     "weights are whole from forward to backward and sharded between "
                     "steps there; always whole here");
      }
    }
    if (shard >= 1 && !(shards && replicas > 1)) {
      map_.set(shards ? kShard : kReplicate, "parallel.data", std::to_string(shard * replicas));
    }
    if (!v_.flag("training.enable_cpu_offload")) return;
    if (!shards) {
      return map_.reclass("training.enable_cpu_offload", KeyClass::kIgnored,
                          "no effect without FSDP");
    }
    map_.set("training.enable_cpu_offload", "offload.optimizer", "host");
    map_.set("training.enable_cpu_offload", "offload.gradients", "host");
    if (stage == "3") map_.set("training.enable_cpu_offload", "offload.parameters", "host");
  }

  void batch() {
    const std::int64_t local = v_.count("training.local_batch_size");
    const bool pipeline = stages() > 1;
    set_number(
        pipeline ? "parallelism.pipeline_parallel_microbatch_size" : "training.local_batch_size",
        "train.micro_batch");
    const std::int64_t global = v_.count("training.global_batch_size");
    const std::int64_t replica = v_.count("parallelism.tensor_parallel_degree") * stages();
    const std::int64_t data = replica > 0 ? world_ / replica : 0;
    if (global > 0) {
      set_number("training.global_batch_size", "train.global_batch");
      if (data > 0 && local > 0 && global % (local * data) != 0) {
        map_.error("training.global_batch_size",
                   counted(global, "sample") + (global == 1 ? " is" : " are") +
                       " no multiple of local batch " + std::to_string(local) + " x " +
                       counted(data, "data-parallel rank") +
                       ", torchtitan stops; change one of the three");
      }
    } else if (pipeline && data > 0) {
      map_.set("training.local_batch_size", "train.global_batch", std::to_string(local * data));
    } else if (pipeline) {
      map_.missing("training.global_batch_size", "train.global_batch",
                   "--world RANKS, or --set train.global_batch=SAMPLES");
    }
    set_number("training.steps", "train.steps");
    set_number("training.max_norm", "train.clip");
    const bool half = v_.text("training.mixed_precision_param") == "bfloat16";
    map_.set("training.mixed_precision_param", "train.dtype", half ? "bf16" : "fp32");
  }

  void optimizer() {
    const std::string& name = v_.text("optimizer.name");
    if (name != "AdamW" && name != "Adam") {
      return map_.error("optimizer.name", "found '" + name +
                                              "', torchtitan has Adam and AdamW; "
                                              "write one of both");
    }
    map_.set("optimizer.name", "optimizer.type", "adamw");
    map_.set("optimizer.name", "optimizer.decoupled", name == "AdamW" ? "true" : "false");
    set_number("optimizer.lr", "optimizer.lr");
    const std::string betas = "[" + format_number(v_.number("optimizer.beta1")) + ", " +
                              format_number(v_.number("optimizer.beta2")) + "]";
    map_.set("optimizer.beta1", "optimizer.betas", betas);
    map_.set("optimizer.beta2", "optimizer.betas", betas);
    set_number("optimizer.eps", "optimizer.eps");
    set_number("optimizer.weight_decay", "optimizer.weight_decay");
    map_.set_own("optimizer.decay", "all", "torchtitan decays norms and biases too");
  }

  // The rise has its first step at lr / warm-up; the fall begins a step after the warm-up.
  void schedule() {
    constexpr std::string_view kType = "lr_scheduler.decay_type";
    const std::int64_t steps = v_.count("training.steps");
    const std::int64_t total =
        v_.is_null("lr_scheduler.total_steps") ? steps : v_.count("lr_scheduler.total_steps");
    const std::int64_t rise = v_.count("lr_scheduler.warmup_steps");
    const std::int64_t warmup = std::min(rise, total);
    if (total < steps) {
      return map_.error("lr_scheduler.total_steps",
                        "fewer than training.steps: the learning rate falls below 0 there; give "
                        "at least " +
                            std::to_string(steps));
    }
    map_.set("lr_scheduler.warmup_steps", "schedule.warmup_steps", std::to_string(warmup));
    if (rise > total) {
      map_.changed("lr_scheduler.warmup_steps", "schedule.warmup_steps " + std::to_string(warmup) +
                                                    ": the run ends before a warm-up of " +
                                                    std::to_string(rise) + " steps");
    }
    std::int64_t fall = total - warmup;
    const bool stable = !v_.is_null("lr_scheduler.decay_ratio");
    if (stable) {
      const double share = std::clamp(v_.number("lr_scheduler.decay_ratio"), 0.0, 1.0);
      fall = std::min(
          fall, static_cast<std::int64_t>(std::nearbyint(static_cast<double>(total) * share)));
    }
    if (fall < 1) return constant();
    map_.set("lr_scheduler.min_lr_factor", "schedule.min_lr",
             format_number(v_.number("optimizer.lr") * v_.number("lr_scheduler.min_lr_factor")));
    const std::string& type = v_.text(kType);
    if (type == "sqrt" || (type == "cosine" && stable)) {
      return map_.stop(kType, "no fall of the form " + type + (stable ? " after a plateau" : ""));
    }
    if (type == "cosine") {
      map_.set(kType, "schedule.type", "cosine");
      if (!v_.is_null("lr_scheduler.total_steps")) {
        map_.set("lr_scheduler.total_steps", "schedule.decay_steps", std::to_string(total));
      }
      return map_.changed(
          kType,
          "the fall begins a step earlier here: step N has the rate of torchtitan's step N + 1");
    }
    map_.set(kType, "schedule.type", "wsd");
    map_.set_own("schedule.decay_steps", std::to_string(total + 1),
                 "torchtitan's last step is one before the end of the fall");
    map_.set(stable ? "lr_scheduler.decay_ratio" : kType, "schedule.wsd_decay",
             std::to_string(fall));
  }

  // No step has a falling rate: the warm-up takes all steps, or decay_ratio is 0.
  void constant() {
    map_.set("lr_scheduler.decay_type", "schedule.type", "constant");
    for (const char* key : {"lr_scheduler.min_lr_factor", "lr_scheduler.decay_ratio"}) {
      if (!v_.is_written(key)) continue;
      map_.reclass(key, KeyClass::kIgnored, "no effect where the rate never falls");
    }
  }

  void checkpoint() {
    map_.set("job.dump_folder", "output.dir", yaml_text(v_.text("job.dump_folder")));
    if (!v_.flag("checkpoint.enable")) {
      return map_.set("checkpoint.enable", "checkpoint.at_end", "false");
    }
    map_.set("checkpoint.folder", "checkpoint.dir",
             yaml_text(v_.text("job.dump_folder") + "/" + v_.text("checkpoint.folder")));
    set_number("checkpoint.interval", "checkpoint.every");
    set_number("checkpoint.keep_latest_k", "checkpoint.keep");
    map_.set("checkpoint.async_mode", "checkpoint.async",
             v_.text("checkpoint.async_mode") == "disabled" ? "false" : "true");
    if (!v_.is_null("checkpoint.initial_load_path") && !v_.flag("checkpoint.initial_load_in_hf")) {
      map_.stop("checkpoint.initial_load_path",
                "a checkpoint of torchtitan is not read; a Hugging Face folder is, as model.from");
    }
  }

  void recompute() {
    const std::string& mode = v_.text("activation_checkpoint.mode");
    if (mode == "memory_budget") {
      return map_.stop("activation_checkpoint.mode",
                       "no memory budget: none, selective and full "
                       "are there");
    }
    map_.set("activation_checkpoint.mode", "recompute.mode", mode);
    if (mode != "selective") return;
    const std::string& option = v_.text("activation_checkpoint.selective_ac_option");
    map_.changed("activation_checkpoint.selective_ac_option",
                 (option == "op" ? std::string("chosen operations are")
                                 : "every layer of " + option + " is") +
                     " computed again there, attention of every layer here");
  }

  void output() {
    set_number("metrics.log_freq", "train.log_every");
    map_.set("metrics.enable_tensorboard", "output.tensorboard",
             v_.flag("metrics.enable_tensorboard") ? "true" : "false");
    if (!v_.is_null("debug.seed")) set_number("debug.seed", "train.seed");
    const std::int64_t longest =
        std::max(v_.count("comm.init_timeout_seconds"), v_.count("comm.train_timeout_seconds"));
    map_.set("comm.init_timeout_seconds", "launch.timeout", std::to_string(longest));
    if (!v_.flag("validation.enable")) {
      return map_.set("validation.enable", "train.eval_steps", "0");
    }
    set_number("validation.freq", "train.eval_every");
    if (v_.count("validation.steps") < 1) {
      return map_.stop("validation.steps",
                       "an evaluation has a number of batches: train.eval_steps");
    }
    set_number("validation.steps", "train.eval_steps");
  }

  const TorchtitanValues& v_;
  PeerMap& map_;
  int world_;
  bool has_model_;
};

}  // namespace

void map_torchtitan(const TorchtitanValues& values, PeerMap& map, int world, bool has_model) {
  TorchtitanMap(values, map, world, has_model).run();
}

}  // namespace sluice::migrate
