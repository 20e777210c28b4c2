#include "configs/validate.hpp"

#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "configs/derived.hpp"
#include "configs/offload_rules.hpp"
#include "configs/parallel_rules.hpp"
#include "configs/problems.hpp"
#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"

namespace sluice {
namespace {

std::string num(double value) { return format_number(value); }
std::string num(std::int64_t value) { return std::to_string(value); }
std::string num(int value) { return std::to_string(value); }

std::int64_t data_ranks(const ParallelOptions& mesh, int world) {
  if (mesh.data > 0) return mesh.data;
  return std::max<std::int64_t>(1, world / (std::int64_t{mesh.tensor} * mesh.pipeline));
}

bool has_one_micro_batch(const RunConfig& run, int world) {
  const std::int64_t global = run.train.global_batch;
  return global == 0 || global == run.train.micro_batch * data_ranks(run.parallel, world);
}

// Why MLflow's store can be no folder; empty: it can.
std::string why_no_folder(const std::string& mlflow) {
  if (mlflow.find(":/") == std::string::npos) return "";
  return "'" + mlflow +
         "' is an address, and a run writes to a folder and talks to no server; name a folder, "
         "which `mlflow ui --backend-store-uri FOLDER` shows";
}

// The remedy of a program that only reads a model, before the one of a run.
constexpr const char* kNoFolder =
    "--set offload.parameters=device (or host) reads the model without the folder: ";

class Validator {
 public:
  Validator(const LoadedConfig& config, int world, std::optional<int> gpus, Purpose purpose)
      : config_(config), run_(config.run), world_(world), gpus_(gpus), purpose_(purpose) {}

  void check_all() {
    if (world_ < 1) {
      broken("launch.nproc", "world >= 1 does not hold: " + num(world_) + " >= 1");
    } else if (check_mesh()) {
      check_batch();
    }
    check_model();
    check_schedule();
    check_zero();
    check_recompute();
    check_offload();
    check_rules(broken_parallel_rules(run_));
    check_rules(broken_matmul_rules(run_));
    check_data();
    if (const std::string why = why_no_folder(run_.output.mlflow); !why.empty()) {
      broken("output.mlflow", why);
    }
    check_launch();
    problems_.throw_if_any();
  }

 private:
  void broken(std::string_view key, const std::string& what) {
    problems_.add(config_.place(key), std::string(key), what);
  }
  [[nodiscard]] bool knows_model() const { return purpose_ != Purpose::kPlanWithoutModel; }
  void check_rules(const std::vector<BrokenRule>& rules) {
    for (const BrokenRule& rule : rules) {
      if (knows_model() || !rule.of_model) broken(rule.key, rule.what);
    }
  }
  // The first of `keys` that was given; else the first.
  [[nodiscard]] std::string_view to_blame(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      if (config_.given(key)) return key;
    }
    return *keys.begin();
  }

  bool check_mesh() {
    const ParallelOptions& mesh = run_.parallel;
    const std::int64_t model_ranks = std::int64_t{mesh.tensor} * mesh.pipeline;
    const std::string sizes = num(mesh.tensor) + " x " + num(mesh.pipeline);
    if (mesh.data > 0) {
      if (world_ % model_ranks == 0 && world_ / model_ranks == mesh.data) return true;
      broken("parallel.data", "world = tensor x pipeline x data does not hold: " + num(world_) +
                                  " != " + sizes + " x " + num(mesh.data) +
                                  "; write auto to let it follow");
      return false;
    }
    if (world_ % model_ranks == 0) return true;
    broken(to_blame({"parallel.tensor", "parallel.pipeline"}),
           "world must be a multiple of tensor x pipeline: " + num(world_) + " % (" + sizes +
               ") = " + num(world_ % model_ranks));
    return false;
  }

  void check_batch() {
    const std::int64_t global = run_.train.global_batch;
    const std::int64_t micro = run_.train.micro_batch;
    const std::int64_t dp = data_ranks(run_.parallel, world_);
    if (global == 0) return check_gradients_dtype(1, dp);
    const std::int64_t one_pass = micro * dp;
    if (global % one_pass == 0) return check_gradients_dtype(global / one_pass, dp);
    const std::int64_t below = global / one_pass * one_pass;
    const double accumulation = static_cast<double>(global) / static_cast<double>(one_pass);
    broken("train.global_batch",
           "global_batch = micro_batch x accumulation x dp has no whole accumulation >= 1: " +
               num(global) + " = " + num(micro) + " x " + short_number(accumulation) + " x " +
               num(dp) +
               (below > 0
                    ? "; the nearest that fit are " + num(below) + " and " + num(below + one_pass)
                    : "; the smallest that fits is " + num(one_pass)));
  }

  // Only complete gradients are rounded.
  void check_gradients_dtype(std::int64_t micro_batches, std::int64_t dp) {
    const OffloadOptions& offload = run_.offload;
    if (offload.gradients_dtype == DType::kFloat32) return;
    const std::string key = "offload.gradients_dtype";
    const std::string name(name_of(offload.gradients_dtype));
    if (offload.gradients == Tier::kDevice && dp > 1) {
      return broken(key, name + " on the device needs one data-parallel rank: " + num(dp) +
                             " ranks reduce gradients in fp32; set " +
                             (run_.zero.stage < 2 ? "zero.stage: 2, " : "") +
                             "offload.gradients: host and offload.optimizer: host, or leave this "
                             "out");
    }
    if (micro_batches == 1 || run_.train.accumulation_order == AccumulationOrder::kLayer) return;
    const std::string what = name +
                             " rounds complete gradients, and in train.accumulation_order: micro "
                             "those of " +
                             num(micro_batches) + " micro-batches a step are added; ";
    broken(key, what + (run_.parallel.pipeline > 1
                            ? "leave this out: a pipeline has no other order"
                            : "set train.accumulation_order: layer, or leave this out"));
  }

  // Three decimals are enough to see that a ratio is not whole.
  static std::string short_number(double value) { return num(std::round(value * 1000) / 1000); }

  void check_model() {
    const ModelOptions& model = run_.model;
    if (model.head_dim == 0 && model.hidden % model.heads != 0) {
      broken(to_blame({"model.heads", "model.hidden"}),
             "hidden must be a multiple of heads: " + num(model.hidden) + " % " + num(model.heads) +
                 " = " + num(model.hidden % model.heads));
    } else if (model.type != ModelType::kGpt2) {
      check_rotary();
    }
    if (model.type == ModelType::kGpt2) {
      check_gpt2();
    } else if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      broken("model.kv_heads", "heads must be a multiple of kv_heads: " + num(model.heads) + " % " +
                                   num(model.kv_heads) + " = " + num(model.heads % model.kv_heads));
    }
    if (model.sliding_window > 0 && model.type != ModelType::kMistral) {
      broken("model.sliding_window", "only a mistral has a sliding window; leave it out");
    }
  }

  void check_gpt2() {
    const ModelOptions& model = run_.model;
    if (model.kv_heads > 0 && model.kv_heads != model.heads) {
      broken("model.kv_heads",
             "a gpt2 has kv_heads = heads: " + num(model.kv_heads) + " != " + num(model.heads));
    }
    if (model.head_dim > 0 && model.head_dim * model.heads != model.hidden) {
      broken("model.head_dim", "a gpt2 has head_dim x heads = hidden: " + num(model.head_dim) +
                                   " x " + num(model.heads) + " != " + num(model.hidden));
    }
    if (model.attention_bias != AttentionBias::kAuto &&
        model.attention_bias != AttentionBias::kQkvo) {
      broken("model.attention_bias", "a gpt2 has biases on all projections; leave it out");
    }
    const ModelOptions plain;
    if (model.rope_theta != plain.rope_theta || model.rope_scaling != plain.rope_scaling) {
      broken(to_blame({"model.rope_scaling", "model.rope_theta"}),
             "a gpt2 learns its positions and has no rotary ones; leave it out");
    }
  }

  void check_rotary() {
    const ModelOptions model = with_defaults(run_.model);
    if (model.head_dim % 2 != 0) {
      broken(to_blame({"model.head_dim", "model.heads", "model.hidden"}),
             run_.model.head_dim > 0
                 ? "rotary positions turn pairs, head_dim must be even: " + num(model.head_dim)
                 : "rotary positions turn pairs, hidden / heads must be even: " +
                       num(model.hidden) + " / " + num(model.heads) + " = " + num(model.head_dim));
    }
    if (model.rope_scaling == RopeScaling::kLlama3 &&
        model.rope_low_freq_factor >= model.rope_high_freq_factor) {
      broken(to_blame({"model.rope_high_freq_factor", "model.rope_low_freq_factor"}),
             "rope_low_freq_factor < rope_high_freq_factor does not hold: " +
                 num(model.rope_low_freq_factor) + " >= " + num(model.rope_high_freq_factor));
    }
  }

  void check_schedule() {
    const ScheduleOptions& schedule = run_.schedule;
    const std::int64_t steps = run_.train.steps;
    const std::int64_t warmup = schedule.warmup_of(steps);
    const std::int64_t fall = schedule.wsd_decay.of(steps);
    const bool follows = schedule.type == ScheduleType::kConstant || schedule.decay_steps.is_auto();
    const std::int64_t decay = follows ? steps : schedule.decay_steps.of(steps);
    const std::string decay_name = follows ? "train.steps" : "decay_steps";
    const std::string advice =
        follows ? "; a share such as 5% follows train.steps (" + config_.place("train.steps") + ")"
                : "";
    if (warmup > decay) {
      // A run that another place cut short ends in its warm-up (idle_keys.hpp). DeepSpeed allows
      // such a schedule: min_lr follows the warm-up.
      const bool cut = follows && config_.overridden("schedule.warmup_steps", "train.steps");
      if (!cut && schedule.counting != StepCounting::kDeepSpeed) {
        broken("schedule.warmup_steps", "warmup_steps <= " + decay_name + " does not hold: " +
                                            num(warmup) + " > " + num(decay) + advice);
      }
    } else if (schedule.type == ScheduleType::kWsd && warmup + fall > decay) {
      broken("schedule.wsd_decay", "warmup_steps + wsd_decay <= " + decay_name +
                                       " does not hold: " + num(warmup) + " + " + num(fall) +
                                       " > " + num(decay) + advice);
    }
    if (schedule.type != ScheduleType::kConstant) check_rate("schedule.min_lr", schedule.min_lr);
    if (warmup > 0) check_rate("schedule.warmup_min_lr", schedule.warmup_min_lr);
  }

  void check_rate(std::string_view key, const RateBound& bound) {
    const double lr = run_.optimizer.lr;
    const double rate = bound.of(lr);
    if (rate <= lr) return;
    const std::string name(key.substr(key.find('.') + 1));
    broken(to_blame({key, "optimizer.lr"}),
           name + " <= lr does not hold: " + num(rate) + " > " + num(lr));
  }

  void check_zero() {
    const ZeroOptions& zero = run_.zero;
    if (zero.reduce_every == ReduceEvery::kStep && zero.stage > 1 &&
        run_.train.accumulation_order != AccumulationOrder::kLayer &&
        !has_one_micro_batch(run_, world_)) {
      broken("zero.reduce_every",
             "step needs stage <= 1 or train.accumulation_order: layer; a rank of stage " +
                 num(zero.stage) + " keeps no whole gradient between micro-batches in micro order");
    }
    // Embedding, blocks and head; the unit that runs is gathered already.
    if (knows_model() && zero.stage == 3 && zero.prefetch_units > run_.model.layers + 1) {
      broken("zero.prefetch_units",
             "prefetch_units <= layers + 1 (all units but the one that runs) "
             "does not hold: " +
                 num(zero.prefetch_units) + " > " + num(run_.model.layers) + " + 1");
    }
  }

  void check_offload() {
    RunConfig run = run_;
    std::vector<std::string>& folders = run.offload.nvme_path;
    const bool elsewhere = purpose_ == Purpose::kPlan || purpose_ == Purpose::kPlanWithoutModel;
    if (elsewhere && !folders.empty()) {
      folders = {std::filesystem::temp_directory_path().string()};
    }
    for (const BrokenRule& rule : broken_offload_rules(run)) {
      const bool spares_folder = purpose_ == Purpose::kUse && rule.key == "offload.nvme_path";
      broken(rule.key, (spares_folder ? kNoFolder : "") + rule.what);
    }
  }

  void check_recompute() {
    if (run_.recompute.mode == RecomputeMode::kSelective && !run_.model.explicit_units) {
      broken("recompute.mode",
             "selective needs model.explicit_units: true: libtorch's autograd keeps what attention "
             "made; set it, or use full");
    }
  }

  void check_data() {
    const DataOptions& data = run_.data;
    const bool opens_data = purpose_ == Purpose::kTrain || purpose_ == Purpose::kUse;
    if (opens_data && !data.names_training()) {
      broken("data.text",
             "one of data.text, data.train, data.blend and data.sft must name what to train on");
    }
    if (!data.text.empty() && !data.train.empty()) {
      broken("data.train", "only one of data.text and data.train may be given");
    }
    if (!data.blend.empty() && (!data.text.empty() || !data.train.empty())) {
      broken("data.blend", "only one of data.text, data.train and data.blend may be given");
    }
    if (!data.sft.empty() && (!data.text.empty() || !data.train.empty() || !data.blend.empty())) {
      broken("data.sft", "data.text, data.train and data.blend may not be given as well");
    }
    check_valid_sets();
    if (is_learned_tokenizer(data.tokenizer) && !learned_vocab(data.tokenizer)) {
      broken("data.tokenizer", "expected bpe:N with N from " + num(kFewestLearnedIds) + " to " +
                                   num(kMostLearnedIds) + ", found " + in_quotes(data.tokenizer));
    }
    const double sum = std::accumulate(data.split.begin(), data.split.end(), 0.0);
    const bool has_shares = data.split.size() == 2 || data.split.size() == 3;
    if (!has_shares || !(data.split[0] > 0)) {
      broken("data.split",
             "the share of training must be above 0: " +
                 (has_shares ? num(data.split[0]) + " of " + num(sum)
                             : num(static_cast<std::int64_t>(data.split.size())) + " shares"));
    }
  }

  void check_valid_sets() {
    std::set<std::string> names;
    for (const ValidSet& set : run_.data.valid_sets) {
      if (!names.insert(set.name).second) {
        broken("data.valid_sets", "two sets have the name " + in_quotes(set.name));
      }
      if (set.path.empty()) broken("data.valid_sets", in_quotes(set.name) + " names no path");
    }
  }

  void check_launch() {
    const bool saves = run_.checkpoint.every != SaveInterval{} || run_.offload.image;
    if (run_.launch.max_restarts > 0 && !saves) {
      broken("launch.max_restarts",
             num(run_.launch.max_restarts) +
                 " restarts need checkpoints to go on from; set checkpoint.every");
    }
    if (!run_.launch.hostfile.empty() && run_.launch.backend == Backend::kLocal) {
      broken("launch.hostfile",
             "ranks that are threads of one process (backend local) have one host; leave out "
             "hostfile, or backend");
    }
    if (!gpus_ || run_.launch.backend != Backend::kNccl) return;
    const int ranks = run_.launch.nproc > 0 ? run_.launch.nproc : world_;
    if (ranks > *gpus_) {
      broken(to_blame({"launch.nproc", "launch.backend"}),
             "nccl runs at most one rank on a GPU: nproc <= GPUs does not hold: " + num(ranks) +
                 " > " + num(*gpus_) + "; lower nproc or use backend gloo");
    }
  }

  const LoadedConfig& config_;
  const RunConfig& run_;
  int world_;
  std::optional<int> gpus_;
  Purpose purpose_;
  Problems problems_;
};

}  // namespace

void validate(const LoadedConfig& config, int world, std::optional<int> gpus, Purpose purpose) {
  Validator(config, world, gpus, purpose).check_all();
}

}  // namespace sluice
