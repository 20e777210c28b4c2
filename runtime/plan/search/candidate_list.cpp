#include "runtime/plan/search/candidate_list.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/plan/search/bounds.hpp"
#include "runtime/plan/search/settings.hpp"

namespace sluice {
namespace {

class CandidateList {
 public:
  CandidateList(Planner& planner, const PlanQuestion& question, const SearchLimits& limits)
      : planner_(planner),
        question_(question),
        limits_(limits),
        budgets_(planner.budgets_of(question)) {}

  std::vector<Candidate> take() {
    std::vector<ParallelOptions> meshes{question_.options.parallel};
    if (limits_.meshes) {
      const int local = ranks_of_node(planner_.machine(), world_of(question_.options));
      meshes = list_meshes(
          {question_.options, local, samples_of_step(question_.options), limits_.allowed});
    }
    for (const ParallelOptions& mesh : meshes) add_mesh(mesh);
    return std::move(candidates_);
  }

 private:
  // All stages, laid out for one micro-batch size and recompute mode.
  struct Base {
    std::vector<StepPlan> stages;
    std::vector<Rates> rates;
  };

  // A larger micro-batch keeps more for backward, so none fits if no smaller one fits. Exception: a
  // step of one micro-batch needs no shards to sum gradients in.
  void add_mesh(const ParallelOptions& mesh) {
    EngineOptions options = question_.options;
    options.train.global_batch = samples_of_step(question_.options);
    set_mesh(options, mesh);
    if (mesh.pipeline > 1) options.offload.speculate = Speculation::kNever;
    const std::int64_t samples = samples_of_step(question_.options) / options.dp;
    bases_.clear();
    bool any = true;
    const std::int64_t configured = question_.options.train.micro_batch;
    for (const std::int64_t micro_batch :
         list_micro_batches(samples, configured, limits_.most_micro_batch)) {
      if (!any && micro_batch < samples) continue;
      const std::size_t before = candidates_.size();
      options.train.micro_batch = micro_batch;
      add_micro_batch(options);
      any =
          std::any_of(candidates_.begin() + static_cast<std::ptrdiff_t>(before), candidates_.end(),
                      [](const Candidate& candidate) { return candidate.floor_missing == 0; });
    }
  }

  void add_micro_batch(EngineOptions options) {
    for (int stage = 0; stage <= 3; ++stage) {
      options.zero.stage = stage;
      for (const Rung& rung : placement_ladder()) {
        if (!has_meaning(rung, stage)) continue;
        if (!limits_.offload && rung.optimizer != Tier::kDevice) continue;
        EngineOptions placed = options;
        place(placed, rung);
        add_orders(placed);
      }
    }
  }

  void add_orders(EngineOptions options) {
    for (const AccumulationOrder order : {AccumulationOrder::kMicro, AccumulationOrder::kLayer}) {
      const bool layer = order == AccumulationOrder::kLayer;
      if (layer && (micro_batches_of(options) == 1 || options.parallel.pipeline > 1)) continue;
      options.train.accumulation_order = order;
      if (!keeps_what_it_sums(options) || !stores_complete_gradients(options)) continue;
      if (limits_.allowed && !limits_.allowed(options)) continue;
      add_recompute(options);
    }
  }

  void add_recompute(EngineOptions options) {
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      if (mode == RecomputeMode::kSelective && !options.model.explicit_units) continue;
      options.recompute.mode = mode;
      options.model.recompute_attention = mode == RecomputeMode::kSelective;
      for (const Tier inputs : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        const bool configured = mode == question_.options.recompute.mode &&
                                inputs == question_.options.offload.activations;
        const bool tried = mode == RecomputeMode::kFull || configured;
        if (inputs != Tier::kDevice && !(tried && limits_.offload)) continue;
        options.offload.activations = inputs;
        add(options);
      }
    }
  }

  Base& base_of(const EngineOptions& options) {
    Base& base = bases_[{options.train.micro_batch, options.model.recompute_attention}];
    if (!base.stages.empty()) return base;
    for (int s = 0; s < options.parallel.pipeline; ++s) {
      EngineOptions of_stage = planner_.at_stage(options, s);
      of_stage.generate_positions = 0;  // decode programs need little beside the training program
      // The bounds do not model a split backward.
      of_stage.parallel.schedule = PipelineSchedule::k1f1b;
      base.stages.push_back(planner_.lower_shape_of(of_stage));
      base.stages.back().shape.pipeline.schedule = options.parallel.schedule;
      base.rates.push_back(planner_.rates(of_stage));
    }
    return base;
  }

  void add(const EngineOptions& options) {
    Base& base = base_of(options);
    Candidate candidate{.options = options};
    for (StepPlan& stage : base.stages) {
      apply_layout(stage, options);
      std::int64_t missing = 0;
      const TierBytes floor = memory_floor(stage.shape);
      for (std::size_t t = 0; t < floor.size(); ++t) {
        if (budgets_[t] > 0) missing += std::max<std::int64_t>(0, floor[t] - budgets_[t]);
      }
      if (question_.budgets.memory > 0) {
        missing = std::max(missing, floor[0] + floor[1] - question_.budgets.memory);
      }
      candidate.chunks = std::max(candidate.chunks, off_device_chunks(stage.shape));
      candidate.floor_missing = std::max(candidate.floor_missing, missing);
      candidate.floor_device = std::max(candidate.floor_device, floor[0]);
    }
    candidate.floor_s = time_floor(base.stages, base.rates);
    candidate.changes = static_cast<int>(differences(question_.options, options).size());
    candidates_.push_back(std::move(candidate));
  }

  Planner& planner_;
  const PlanQuestion& question_;
  const SearchLimits& limits_;
  TierBytes budgets_;
  std::map<std::pair<std::int64_t, bool>, Base> bases_;  // of a mesh, by micro-batch and selective
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> list_candidates(Planner& planner, const PlanQuestion& question,
                                       const SearchLimits& limits) {
  return CandidateList(planner, question, limits).take();
}

}  // namespace sluice
