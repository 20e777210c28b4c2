// Batch, steps, schedule, optimizer, precision.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/counted.hpp"
#include "configs/migrate/peers/megatron_map.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kLr = "--lr";

std::int64_t ranks_of_a_replica(const MegatronArgs& args) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  std::int64_t ranks = 1;
  for (const std::string_view name :
       {"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
        "--context-parallel-size"}) {
    ranks *= std::clamp<std::int64_t>(args.count(name), 1, kMost);
  }
  return ranks;
}

void map_global_batch(MegatronRun& run, std::int64_t micro) {
  const std::int64_t replica = ranks_of_a_replica(run.args);
  const std::int64_t data = run.world / replica;
  if (run.world > 0 && run.world % replica != 0) {
    run.map.error(run.args.has("--pipeline-model-parallel-size") ? "--pipeline-model-parallel-size"
                                                                 : "--tensor-model-parallel-size",
                  std::to_string(run.world) + " ranks are no multiple of the " +
                      std::to_string(replica) +
                      " ranks of a replica, Megatron-LM stops; change the number of ranks");
    return;
  }
  run.global_batch =
      run.args.has("--global-batch-size") ? run.args.count("--global-batch-size") : micro * data;
  if (!run.args.has("--global-batch-size")) {
    if (data > 0) {
      run.map.set_own("train.global_batch", std::to_string(run.global_batch),
                      "--global-batch-size, the default there: micro batch x " +
                          counted(data, "data-parallel rank"));
    }
    return;
  }
  run.map.set("--global-batch-size", "train.global_batch", std::to_string(run.global_batch));
  if (data > 0 && run.global_batch % (micro * data) != 0) {
    run.map.error("--global-batch-size",
                  counted(run.global_batch, "sample") + (run.global_batch == 1 ? " is" : " are") +
                      " no multiple of micro batch " + std::to_string(micro) + " x " +
                      counted(data, "data-parallel rank") +
                      ", Megatron-LM stops; change one of the three");
  }
}

void map_steps(MegatronRun& run) {
  const bool iters = run.args.has("--train-iters");
  const bool samples = run.args.has("--train-samples");
  if (iters == samples) {
    run.map.error(iters ? "--train-samples" : "--train-iters",
                  iters ? "--train-iters is given too, Megatron-LM stops; leave one of both out"
                        : "Megatron-LM needs --train-iters or --train-samples; give one of both");
    return;
  }
  if (iters) {
    run.steps = run.args.count("--train-iters");
    run.map.set("--train-iters", "train.steps", run.args.text("--train-iters"));
  } else if (run.global_batch > 0) {
    const std::int64_t all = run.args.count("--train-samples");
    run.steps = all / run.global_batch;
    run.map.set("--train-samples", "train.steps", std::to_string(run.steps));
    run.map.changed("--train-samples", std::to_string(all) + " samples there, " +
                                           counted(run.steps, "step") + " of " +
                                           counted(run.global_batch, "sample") + " here");
  } else {
    run.map.missing("--train-samples", "train.steps", "--world RANKS, or --set train.steps=STEPS");
  }
}

class ScheduleMap {
 public:
  explicit ScheduleMap(MegatronRun& run) : run_(run), args_(run.args), map_(run.map) {}

  void run() {
    map_.set_own("schedule.counting", "from_zero",
                 "Megatron-LM's first step has the learning rate of 0 samples");
    if (!args_.has(kLr)) {
      map_.error(kLr, "Megatron-LM needs a learning rate; give --lr");
      return;
    }
    map_.set(kLr, "optimizer.lr", format_number(args_.number(kLr)));
    if (args_.number("--min-lr") > args_.number(kLr)) {
      map_.error("--min-lr", "greater than --lr, Megatron-LM stops; give a smaller one");
    }
    if (run_.steps == 0) return;
    forms();
    style();
    warmup();
    exit_interval();
  }

 private:
  // Megatron-LM's own rule: one unit for all of them.
  void forms() {
    const bool by_samples = args_.has("--train-samples");
    const std::string_view unit = by_samples ? "--train-samples" : "--train-iters";
    for (const std::string_view name :
         {"--lr-decay-iters", "--lr-warmup-iters", "--lr-wsd-decay-iters"}) {
      if (by_samples && args_.has(name)) wrong_unit(name, unit);
    }
    for (const std::string_view name :
         {"--lr-decay-samples", "--lr-warmup-samples", "--lr-wsd-decay-samples"}) {
      if (!by_samples && args_.has(name)) wrong_unit(name, unit);
    }
  }

  void wrong_unit(std::string_view name, std::string_view unit) {
    map_.error(name, "not with " + std::string(unit) +
                         ", Megatron-LM stops or ignores the value; give the value in the unit "
                         "of " +
                         std::string(unit));
  }

  // Steps of an argument in iterations or samples.
  double steps_of(const std::string& stem, double otherwise) const {
    if (args_.has("--train-samples")) {
      const std::string name = stem + "-samples";
      if (!args_.has(name)) return otherwise;
      return args_.number(name) / static_cast<double>(run_.global_batch);
    }
    const std::string name = stem + "-iters";
    return args_.has(name) ? args_.number(name) : otherwise;
  }

  [[nodiscard]] double decay_steps() const {
    const double all = args_.has("--train-samples") ? args_.number("--train-samples") /
                                                          static_cast<double>(run_.global_batch)
                                                    : static_cast<double>(run_.steps);
    return steps_of("--lr-decay", all);
  }

  [[nodiscard]] std::string written(const std::string& stem) const {
    return stem + (args_.has("--train-samples") ? "-samples" : "-iters");
  }

  // A number of steps that is whole here.
  void set_steps(const std::string& from, std::string_view key, double steps) {
    const double whole = std::round(steps);
    map_.set(from, key, format_number(whole));
    if (std::abs(whole - steps) > 1e-9 * std::max(1.0, steps)) {
      map_.changed(from, format_number(steps) + " steps there, " + format_number(whole) + " here");
    }
  }

  void style() {
    const std::string style = args_.text("--lr-decay-style");
    if (style == "inverse-square-root") {
      map_.stop("--lr-decay-style", "no such schedule: constant, linear, cosine and WSD are there");
      return;
    }
    map_.set("--lr-decay-style", "schedule.type", style == "WSD" ? "wsd" : style);
    if (style == "constant") return;
    map_.set("--min-lr", "schedule.min_lr", format_number(args_.number("--min-lr")));
    if (args_.has(written("--lr-decay"))) {
      set_steps(written("--lr-decay"), "schedule.decay_steps", decay_steps());
    }
    if (style == "WSD") final_fall();
  }

  void final_fall() {
    const std::string form = args_.text("--lr-wsd-decay-style");
    if (form != "linear") {
      map_.stop("--lr-wsd-decay-style", "the final fall is linear, " + form + " there",
                "give --lr-wsd-decay-style linear");
    }
    const std::string from = written("--lr-wsd-decay");
    if (!args_.has(from)) {
      map_.error("--lr-decay-style", "WSD needs " + from + ", Megatron-LM stops; give " + from);
      return;
    }
    const double fall = steps_of("--lr-wsd-decay", 0);
    set_steps(from, "schedule.wsd_decay", fall);
    if (fall > decay_steps() - warmup_steps()) {
      map_.stop(from, "the final fall begins within the warm-up there, after the warm-up here",
                "give fewer steps of the fall or of the warm-up");
    }
  }

  [[nodiscard]] double warmup_steps() const {
    if (args_.has("--lr-warmup-fraction")) {
      return args_.number("--lr-warmup-fraction") * decay_steps();
    }
    return steps_of("--lr-warmup", 0);
  }

  void warmup() {
    const bool share = args_.has("--lr-warmup-fraction");
    const std::string from = share ? "--lr-warmup-fraction" : written("--lr-warmup");
    const double steps = warmup_steps();
    if (share && args_.count(written("--lr-warmup")) != 0) {
      map_.error(from, "not with " + written("--lr-warmup") +
                           ", Megatron-LM stops; leave one of both out");
    }
    set_steps(from, "schedule.warmup_steps", steps);
    if (steps > 0) {
      map_.set("--lr-warmup-init", "schedule.warmup_min_lr",
               format_number(args_.number("--lr-warmup-init")));
    }
    if (steps >= decay_steps()) {
      map_.error(from, "the warm-up has " + format_number(steps) + " of " +
                           format_number(decay_steps()) +
                           " steps, Megatron-LM stops; give fewer steps");
    }
  }

  // The run ends early; the schedule stays that of all steps.
  void exit_interval() {
    const std::int64_t interval = args_.count("--exit-interval");
    if (interval < 1 || interval >= run_.steps) return;
    const std::string all = std::to_string(run_.steps);
    map_.set("--exit-interval", "train.steps", std::to_string(interval));
    if (map_.draft().value("schedule.decay_steps") == nullptr) {
      map_.set("--exit-interval", "schedule.decay_steps", all);
    }
    map_.changed("--exit-interval",
                 "the run ends at every multiple there, and continues with the "
                 "next start; " +
                     std::to_string(interval) + " of " + all + " steps here");
  }

  MegatronRun& run_;
  const MegatronArgs& args_;
  PeerMap& map_;
};

void map_adam(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const bool lion = args.text("--optimizer") == "lion";
  const std::string first = lion ? "--lion-beta1" : "--adam-beta1";
  const std::string second = lion ? "--lion-beta2" : "--adam-beta2";
  const std::string betas =
      "[" + format_number(args.number(first)) + ", " + format_number(args.number(second)) + "]";
  for (const std::string& beta : {first, second}) {
    if (args.number(beta) >= 0 && args.number(beta) < 1) continue;
    run.map.error(beta, "found " + args.text(beta) + ", expected a number in [0, 1); give one");
    return;
  }
  run.map.set(first, "optimizer.betas", betas);
  run.map.set(second, "optimizer.betas", betas);
  if (!lion) run.map.set("--adam-eps", "optimizer.eps", format_number(args.number("--adam-eps")));
}

void map_loss_scale(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  if (!args.has("--fp16")) {
    for (const std::string_view name : {"--loss-scale", "--initial-loss-scale", "--min-loss-scale",
                                        "--loss-scale-window", "--hysteresis"}) {
      if (args.has(name)) {
        run.map.reclass(name, KeyClass::kNotNeeded, "no loss scale without --fp16");
      }
    }
    if (args.has("--loss-scale") && args.number("--loss-scale") != 1) {
      run.map.reclass("--loss-scale", KeyClass::kNotNeeded,
                      "the scale cancels out of the update of a run without --fp16");
    }
    return;
  }
  if (args.has("--loss-scale") && args.number("--loss-scale") != 0) {
    run.map.set("--loss-scale", "loss_scale.static", format_number(args.number("--loss-scale")));
    return;
  }
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"--initial-loss-scale", "loss_scale.initial"},
      {"--min-loss-scale", "loss_scale.min"},
      {"--loss-scale-window", "loss_scale.window"},
      {"--hysteresis", "loss_scale.hysteresis"}};
  for (const auto& [from, key] : kKeys) run.map.set(from, key, format_number(args.number(from)));
}

void map_precision(MegatronRun& run) {
  const bool fp16 = run.args.has("--fp16");
  const bool bf16 = run.args.has("--bf16");
  if (fp16 && bf16) {
    run.map.error("--bf16", "--fp16 is given too, Megatron-LM stops; leave one of both out");
  }
  if (fp16) run.map.set("--fp16", "train.dtype", "fp16");
  if (bf16) run.map.set("--bf16", "train.dtype", "bf16");
  if (!fp16 && !bf16) run.map.set_own("train.dtype", "fp32", "neither --bf16 nor --fp16");
  if (fp16 && !run.args.has("--accumulate-allreduce-grads-in-fp32")) {
    run.map.changed("--accumulate-allreduce-grads-in-fp32",
                    "gradients are reduced and accumulated in fp16 there, in fp32 here");
  }
  if (run.args.has("--grad-reduce-in-bf16")) {
    run.map.set("--grad-reduce-in-bf16", "zero.reduce_dtype", "bf16");
    run.map.changed("--grad-reduce-in-bf16", "gradients are added in bf16 there, in fp32 here");
  }
  map_loss_scale(run);
}

}  // namespace

void map_megatron_batch(MegatronRun& run) {
  const std::int64_t micro = run.args.count("--micro-batch-size");
  if (micro < 1) {
    run.map.error("--micro-batch-size", "Megatron-LM needs a number above 0; give the argument");
    return;
  }
  run.map.set("--micro-batch-size", "train.micro_batch", std::to_string(micro));
  if (run.args.has("--global-batch-size") && run.args.count("--global-batch-size") < 1) {
    run.map.error("--global-batch-size", "Megatron-LM needs a number above 0; give one");
    return;
  }
  map_global_batch(run, micro);
  map_steps(run);
}

void map_megatron_schedule(MegatronRun& run) { ScheduleMap(run).run(); }

void map_megatron_optimizer(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const std::string type = args.text("--optimizer");
  if (type == "adam" || type == "lion" || type == "sgd") {
    run.map.set("--optimizer", "optimizer.type", type == "adam" ? "adamw" : type);
  } else {
    run.map.stop("--optimizer", "no optimizer " + type + ": adam, lion and sgd are there");
  }
  if (type == "sgd") {
    run.map.set("--sgd-momentum", "optimizer.momentum",
                format_number(args.number("--sgd-momentum")));
  } else {
    map_adam(run);
  }
  run.map.set("--weight-decay", "optimizer.weight_decay",
              format_number(args.number("--weight-decay")));
  run.map.set_own("optimizer.decay", "matrices",
                  "Megatron-LM leaves out biases and one-dimensional parameters");
  run.map.set("--clip-grad", "train.clip", format_number(args.number("--clip-grad")));
  map_precision(run);
}

}  // namespace sluice::migrate
