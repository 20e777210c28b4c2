#include "runtime/plan/search/search.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "runtime/plan/search/bounds.hpp"
#include "runtime/plan/search/candidate.hpp"
#include "runtime/plan/search/evaluator.hpp"
#include "runtime/plan/search/ranking.hpp"
#include "runtime/plan/search/spare_room.hpp"

namespace sluice {
namespace {

// refine() makes plans faster, but hardly one that takes so many times as long: the host then
// updates during the whole step, where it did so during the forward alone.
constexpr double kNear = 1.5;

class Search {
 public:
  Search(Planner& planner, const PlanQuestion& question, const SearchLimits& limits)
      : planner_(planner),
        question_(question),
        limits_(limits),
        allowed_(limits.evaluations),
        evaluator_(planner, question.budgets),
        budgets_(planner.budgets_of(question)) {}

  SearchResult run() {
    std::vector<ParallelOptions> meshes{question_.options.parallel};
    if (limits_.meshes) {
      const int local = ranks_of_node(planner_.machine(), world_of(question_.options));
      meshes = list_meshes(
          {question_.options, local, samples_of_step(question_.options), limits_.allowed});
    }
    for (const ParallelOptions& mesh : meshes) add_mesh(mesh);
    result_.candidates = static_cast<int>(candidates_.size());
    find_fastest();
    share_with_device();
    if (found_.empty() && limits_.below_s == 0) find_nearest();
    refine();
    if (!found_.empty() && found_.front().missing == 0) polish();
    if (!found_.empty() && found_.front().missing > 0) gather_late();
    finish();
    return std::move(result_);
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

  bool evaluate(const Candidate& candidate, Found& found) {
    if (result_.evaluated >= allowed_) return false;
    ++result_.evaluated;
    const RunPlan plan = evaluator_.evaluate(candidate.options);
    found = {&candidate, plan.time.step_s, plan.missing(), fitting_on_device(plan),
             fitting_on_host(plan)};
    for (std::size_t t = 0; t < found.peaks.size(); ++t) {
      found.peaks[t] = plan.memory.tiers[t].peak;
    }
    return true;
  }

  void find_fastest() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return std::tie(a.floor_s, a.changes) < std::tie(b.floor_s, b.changes);
                     });
    for (const Candidate& candidate : candidates_) {
      if (candidate.floor_missing > 0) continue;
      if (limits_.below_s > 0 && candidate.floor_s >= kNear * limits_.below_s) break;
      const auto most = static_cast<std::size_t>(limits_.most);
      if (found_.size() >= most && candidate.floor_s >= found_[most - 1].step_s) break;
      Found found{};
      if (!evaluate(candidate, found)) {
        result_.spent = true;
        break;
      }
      if (found.missing > 0) {
        near_.push_back(found);
        continue;
      }
      // Of equally fast candidates, fewest changes come first: less memory alone is no reason.
      insert(found_, found);
    }
  }

  // Where all that fits has states on NVMe, or nothing fits: the optimizer on the host but for what
  // the device has room for.
  void share_with_device() {
    constexpr int kMost = 24;
    const bool fits =
        !found_.empty() && found_.front().candidate->options.offload.optimizer != Tier::kNvme;
    if (!limits_.offload || fits) return;
    allowed_ = result_.evaluated + kMost;
    for (const Candidate* const candidate : host_placements(candidates_)) {
      if (candidate->chunks > limits_.most_chunks) continue;
      Found plain{};
      if (!evaluate(*candidate, plain)) return;
      if (plain.device_fraction == 0) continue;
      Candidate shared = with_device_fraction(plain);
      if (limits_.allowed && !limits_.allowed(shared.options)) continue;
      ++shared.changes;
      further_.push_back(std::move(shared));
      Found found{};
      if (!evaluate(further_.back(), found)) return;
      if (found.missing > 0) {
        near_.push_back(found);
      } else {
        insert(found_, found);
      }
    }
  }

  void find_nearest() {
    std::vector<const Candidate*> order;
    for (const Candidate& candidate : candidates_) order.push_back(&candidate);
    std::stable_sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) {
      return std::tie(a->floor_missing, a->floor_s) < std::tie(b->floor_missing, b->floor_s);
    });
    allowed_ = result_.evaluated + limits_.evaluations;
    for (const Candidate* candidate : order) {
      if (!near_.empty()) {
        const Found& best = *std::ranges::min_element(near_, {}, &Found::missing);
        if (best.missing == 0 || candidate->floor_missing >= best.missing) break;
      }
      if (candidate->chunks > limits_.most_chunks) break;
      if (std::ranges::find(near_, candidate, &Found::candidate) != near_.end()) continue;
      Found found{};
      if (!evaluate(*candidate, found)) break;
      near_.push_back(found);
    }
    if (!near_.empty()) found_.push_back(*std::ranges::min_element(near_, {}, &Found::missing));
  }

  // Tries what was found with states on the device as far as they fit, with speculative updates,
  // which take more of the host, and with both; each also with states on the host instead of NVMe
  // as far as they fit.
  void refine() {
    struct Extra {
      bool on_device = false, early = false;
    };
    constexpr int kMost = 128;
    allowed_ = result_.evaluated + kMost;
    std::vector<Found> starts;
    for (const Candidate* const candidate : other_placements(candidates_, found_)) {
      Found found{};
      if (evaluate(*candidate, found)) starts.push_back(found);
    }
    for (const Found& plain : found_) {
      if (plain.step_s > kNear * found_.front().step_s) break;
      starts.push_back(plain);
    }
    for (const Found& plain : starts) {
      const EngineOptions& options = plain.candidate->options;
      if (options.offload.optimizer == Tier::kDevice || plain.missing > 0) continue;
      if (plain.host_fraction > options.offload.host_fraction) {
        try_further(plain, with_host_fraction(plain));
      }
      for (const Extra extra : {Extra{true, false}, Extra{false, true}, Extra{true, true}}) {
        if (extra.on_device && plain.device_fraction == 0) continue;
        Candidate candidate = extra.on_device ? with_device_fraction(plain) : *plain.candidate;
        if (extra.early) speculate(candidate.options);
        try_further(plain, std::move(candidate));
      }
    }
  }

  static void speculate(EngineOptions& options) {
    if (options.parallel.pipeline == 1) options.offload.speculate = Speculation::kAuto;
  }

  // Tries the fastest of all with speculative updates, which refine() has tried with fewer states
  // on the host, and then with more units gathered ahead, which take the device's room.
  void polish() {
    constexpr int kMost = 6;
    allowed_ = result_.evaluated + kMost;
    if (found_.front().candidate->options.offload.optimizer != Tier::kDevice) {
      Candidate early = *found_.front().candidate;
      speculate(early.options);
      try_further(Found(found_.front()), std::move(early), 0);
    }
    const Found plain = found_.front();
    const EngineOptions& options = plain.candidate->options;
    const bool gathers = options.dp > 1 || options.offload.parameters != Tier::kDevice;
    if (options.zero.stage < 3 || !gathers) return;
    for (const int units : {8, 4, 2}) {
      if (options.zero.prefetch_units >= units || found_.front().step_s < plain.step_s) return;
      Candidate ahead = *plain.candidate;
      ahead.options.zero.prefetch_units = units;
      try_further(plain, std::move(ahead), 0);
    }
  }

  // Also with more states on the host, where these fit, and with all of them there instead of on
  // NVMe. Fewer states on NVMe have fewer second places of early updates on the host: hence
  // `rounds`.
  void try_further(const Found& plain, Candidate candidate, int rounds = 2) {
    const std::size_t more = differences(plain.candidate->options, candidate.options).size();
    if (more == 0 || (limits_.allowed && !limits_.allowed(candidate.options))) return;
    candidate.changes = plain.candidate->changes + static_cast<int>(more);
    further_.push_back(std::move(candidate));
    Found better{};
    if (!evaluate(further_.back(), better) || better.missing > 0) return;
    if (better.step_s <= kWorthwhile * plain.step_s) insert(found_, better);
    if (rounds == 0) return;
    const OffloadOptions& offload = better.candidate->options.offload;
    if (better.host_fraction > offload.host_fraction) {
      try_further(plain, with_host_fraction(better), rounds - 1);
    }
    if (may_be_all_on_host(better)) try_further(plain, with_all_on_host(better), 0);
  }

  // If nothing fits: tries the nearest misses of stage 3 without prefetched units, which is slower.
  void gather_late() {
    constexpr std::size_t kMost = 16;
    const std::size_t first = further_.size();
    std::ranges::stable_sort(near_, {}, &Found::missing);
    for (const Found& miss : near_) {
      Candidate candidate = *miss.candidate;
      if (candidate.options.zero.stage < 3 || candidate.options.zero.prefetch_units == 0) continue;
      candidate.options.zero.prefetch_units = 0;
      ++candidate.changes;
      further_.push_back(std::move(candidate));
      if (further_.size() == first + kMost) break;
    }
    allowed_ = result_.evaluated + static_cast<int>(kMost);
    for (std::size_t i = first; i < further_.size(); ++i) {
      Found found{};
      if (!evaluate(further_[i], found)) break;
      const std::int64_t best = found_.front().missing;
      if (found.missing > 0 && found.missing >= best) continue;
      if (best > 0) found_.clear();
      insert(found_, found);
    }
  }

  // Plans more than are suggested in full, because evaluations may be out by a tenth of a step:
  // except with very many micro-batches, whose program takes minutes. Some may not fit after all.
  void finish() {
    constexpr std::int64_t kMostWritten = 4096;  // micro-batches
    constexpr std::size_t kMore = 8;
    const auto most = static_cast<std::size_t>(limits_.most);
    result_.candidates += static_cast<int>(further_.size());
    if (found_.size() > most + kMore) found_.resize(most + kMore);
    std::vector<Suggestion>& all = result_.suggestions;
    for (const Found& found : found_) {
      const EngineOptions& options = found.candidate->options;
      all.push_back({differences(question_.options, options),
                     micro_batches_of(options) <= kMostWritten ? plan_in_full(options)
                                                               : evaluator_.evaluate(options),
                     options});
    }
    result_.any_fits = keep_best(all, limits_.most);
  }

  // A program that is too long to be written (refuse_long_program) is left as it was evaluated.
  RunPlan plan_in_full(const EngineOptions& options) {
    try {
      return evaluator_.plan(options);
    } catch (const ConfigError&) {
      return evaluator_.evaluate(options);
    }
  }

  Planner& planner_;
  const PlanQuestion& question_;
  SearchLimits limits_;
  int allowed_;  // evaluations
  Evaluator evaluator_;
  TierBytes budgets_;
  std::map<std::pair<std::int64_t, bool>, Base> bases_;  // of a mesh, by micro-batch and selective
  std::vector<Candidate> candidates_;
  std::deque<Candidate> further_;  // without prefetch, or of refine()
  std::vector<Found> found_;       // fitting candidates, fastest first
  std::vector<Found> near_;        // candidates that do not fit
  SearchResult result_;
};

}  // namespace

SearchResult search(Planner& planner, const PlanQuestion& question, const SearchLimits& limits) {
  return Search(planner, question, limits).run();
}

}  // namespace sluice
