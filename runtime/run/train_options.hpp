// The training loop's own settings: `train:`, `schedule:`, `recompute:` and `memory:`.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"
#include "zero/optimizer_options.hpp"

namespace sluice {

enum class AccumulationOrder { kMicro, kLayer };
// Type in which 16-bit matrices are multiplied; kAuto: the faster of kNative and kFp32 on a CPU,
// kNative on a GPU (matmul_choice.hpp).
enum class MatmulChoice { kAuto, kNative, kFp32, kFp8 };
// Whether a GPU records a step's compute once and launches it as graphs (graph_choice.hpp).
enum class GraphChoice { kAuto, kNever };

struct TrainOptions {
  std::int64_t steps = 1000;      // optimizer steps
  std::int64_t micro_batch = 1;   // samples of one rank's forward
  std::int64_t global_batch = 0;  // samples of an optimizer step; 0: micro_batch x dp
  AccumulationOrder accumulation_order = AccumulationOrder::kMicro;
  DType dtype = DType::kFloat32;
  MatmulChoice matmul = MatmulChoice::kAuto;
  AttentionChoice attention = AttentionChoice::kAuto;
  bool deterministic = false;  // a GPU's attention gives the same bits from run to run
  GraphChoice cuda_graphs = GraphChoice::kAuto;
  std::uint64_t seed = 1234;
  double clip = 1.0;                  // global gradient norm; 0: off
  std::vector<std::string> freeze{};  // patterns of parameters that are not trained
  std::int64_t eval_every = 0;        // steps between evaluations; 0: only at the end
  std::int64_t eval_steps = 10;       // global batches of one evaluation; 0: never evaluate
  std::int64_t log_every = 10;
  std::int64_t sample_tokens = 0;  // tokens generated from the trained model at the end; 0: none
};

// Steps of the schedule: a number, or a share of train.steps.
struct StepCount {
  StepCount(std::int64_t number = 0) : steps(number) {}  // NOLINT(google-explicit-constructor)
  static StepCount share_of_all(double share) {
    StepCount count;
    count.share = share;
    return count;
  }

  std::int64_t steps = 0;
  double share = 0;  // in (0, 1]; 0: `steps` holds

  // True if neither number nor share is given.
  [[nodiscard]] bool is_auto() const { return steps == 0 && share == 0; }
  // Steps in a run of `all` steps; a share is at least one step.
  [[nodiscard]] std::int64_t of(std::int64_t all) const {
    if (share == 0 || all <= 0) return steps;
    const std::int64_t nearest = std::llround(share * static_cast<double>(all));
    return nearest < 1 ? 1 : nearest;
  }

  friend bool operator==(const StepCount&, const StepCount&) = default;
};

// A learning rate: a number, or a share of optimizer.lr.
struct RateBound {
  RateBound(double number = 0) : rate(number) {}  // NOLINT(google-explicit-constructor)
  static RateBound share_of_lr(double share) {
    RateBound bound;
    bound.share = share;
    return bound;
  }

  double rate = 0;
  double share = 0;  // in (0, 1]; 0: `rate` holds

  [[nodiscard]] double of(double lr) const { return share == 0 ? rate : share * lr; }

  friend bool operator==(const RateBound&, const RateBound&) = default;
};

enum class ScheduleType { kConstant, kLinear, kCosine, kWsd };
enum class WarmupShape { kLinear, kLog };

// The position in the schedule of optimizer step s, which counts from 1. kFromOne: s. kFromZero:
// s - 1, as in PyTorch and Hugging Face. kDeepSpeed: the learning rates of DeepSpeed's WarmupLR
// (constant), WarmupDecayLR (linear) and WarmupCosineLR (cosine), whose position is s - 1, but
// s - 2 in a linear warm-up and in a linear fall. A DeepSpeed warm-up has at least 2 steps, and the
// fall never shortens it. Step 1 of a cosine has learning rate 0. Step 1 of DeepSpeed before 0.15.3
// had the optimizer's learning rate instead.
enum class StepCounting { kFromOne, kFromZero, kDeepSpeed };

struct ScheduleOptions {
  ScheduleType type = ScheduleType::kCosine;
  WarmupShape warmup = WarmupShape::kLinear;
  StepCount warmup_steps{};
  RateBound warmup_min_lr{};  // at the begin of the warm-up
  RateBound min_lr{};
  StepCount decay_steps{};  // the position at which min_lr is reached; 0: train.steps
  StepCount wsd_decay{};    // wsd: steps of the final fall; 0: a tenth of decay_steps
  StepCounting counting = StepCounting::kFromOne;

  // Steps of the warm-up in a run of `all` steps.
  [[nodiscard]] std::int64_t warmup_of(std::int64_t all) const {
    const std::int64_t steps = warmup_steps.of(all);
    return counting == StepCounting::kDeepSpeed && steps < 2 ? 2 : steps;
  }
};

enum class RecomputeMode { kNone, kFull, kSelective };

struct RecomputeOptions {
  RecomputeMode mode = RecomputeMode::kNone;
};

struct MemoryOptions {  // budgets in bytes; 0: no limit given
  std::int64_t device = 0;
  std::int64_t host = 0;
  std::int64_t nvme = 0;
};

// The learning rate of optimizer step `step` (from 1), whose position is p (StepCounting). With a
// warm-up of w steps, while p <= w: a rise from warmup_min_lr to lr as p / w (linear), or as
// log(p) / log(w) (log). Then a fall to min_lr at position decay_steps, then min_lr.
[[nodiscard]] double learning_rate(const OptimizerOptions& optimizer,
                                   const ScheduleOptions& schedule, std::int64_t total_steps,
                                   std::int64_t step);

}  // namespace sluice
