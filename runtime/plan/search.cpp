#include "runtime/plan/search.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "runtime/plan/unit_seconds.hpp"
#include "runtime/program/persistent_bytes.hpp"

namespace sluice {
namespace {

// Where the states live, from all on the device to all on NVMe.
struct Rung {
  const char* name;
  Tier optimizer;
  Tier gradients;
  Tier parameters;
};
constexpr Rung kLadder[] = {
    {"none", Tier::kDevice, Tier::kDevice, Tier::kDevice},
    {"host: o", Tier::kHost, Tier::kDevice, Tier::kDevice},
    {"host: o g", Tier::kHost, Tier::kHost, Tier::kDevice},
    {"host: o g p", Tier::kHost, Tier::kHost, Tier::kHost},
    {"nvme: o", Tier::kNvme, Tier::kDevice, Tier::kDevice},
    {"nvme: o, host: g", Tier::kNvme, Tier::kHost, Tier::kDevice},
    {"nvme: o, host: g p", Tier::kNvme, Tier::kHost, Tier::kHost},
    {"nvme: o g p", Tier::kNvme, Tier::kNvme, Tier::kNvme},
};

bool has_meaning(const Rung& rung, int stage) {
  return (rung.gradients == Tier::kDevice || stage >= 2) &&
         (rung.parameters == Tier::kDevice || stage == 3);
}

void place(EngineOptions& options, const Rung& rung) {
  options.offload.optimizer = rung.optimizer;
  options.offload.gradients = rung.gradients;
  options.offload.parameters = rung.parameters;
  if (rung.optimizer == Tier::kDevice || rung.gradients != Tier::kDevice ||
      rung.parameters != Tier::kDevice) {
    options.offload.device_fraction = 0;
  }
}

bool uses_nvme(const OffloadOptions& o) {
  return o.optimizer == Tier::kNvme || o.gradients == Tier::kNvme || o.parameters == Tier::kNvme ||
         o.activations == Tier::kNvme;
}

std::vector<Setting> differences(const EngineOptions& from, const EngineOptions& to) {
  std::vector<Setting> set;
  const auto add = [&](const char* key, auto before, auto after, std::string text) {
    if (before != after) set.push_back({key, std::move(text)});
  };
  const auto tier = [&](const char* key, Tier before, Tier after) {
    add(key, before, after, std::string(name_of(after)));
  };
  add("zero.stage", from.zero.stage, to.zero.stage, std::to_string(to.zero.stage));
  add("train.micro_batch", from.train.micro_batch, to.train.micro_batch,
      std::to_string(to.train.micro_batch));
  if (from.train.micro_batch != to.train.micro_batch && from.train.global_batch == 0) {
    add("train.global_batch", from.train.global_batch, to.train.global_batch,
        std::to_string(to.train.global_batch));
  }
  add("train.accumulation_order", from.train.accumulation_order, to.train.accumulation_order,
      to.train.accumulation_order == AccumulationOrder::kLayer ? "layer" : "micro");
  add("recompute.mode", from.recompute.mode, to.recompute.mode,
      std::string(name_of(to.recompute.mode)));
  tier("offload.optimizer", from.offload.optimizer, to.offload.optimizer);
  tier("offload.gradients", from.offload.gradients, to.offload.gradients);
  tier("offload.parameters", from.offload.parameters, to.offload.parameters);
  tier("offload.activations", from.offload.activations, to.offload.activations);
  add("offload.device_fraction", from.offload.device_fraction, to.offload.device_fraction, "0");
  if (uses_nvme(to.offload) && from.offload.nvme_path.empty()) {
    set.push_back({"offload.nvme_path", kNvmePlaceholder});
  } else if (!uses_nvme(to.offload) && !from.offload.nvme_path.empty()) {
    set.push_back({"offload.nvme_path", "[]"});
  }
  return set;
}

using TierBytes = std::array<std::int64_t, static_cast<std::size_t>(kTierCount)>;

// What a step cannot do with less of: states, and on the device what forward leaves for backward.
TierBytes memory_floor(const StepShape& shape) {
  TierBytes floor{};
  for (const Persistent& p : list_persistent(shape)) {
    floor[static_cast<std::size_t>(p.tier)] += p.bytes;
  }
  std::int64_t kept = 0;
  for (std::size_t u = 0; u + 1 < shape.units.size(); ++u) {
    const UnitMemory& memory = shape.units[u].memory;
    const bool stays = !shape.recompute || shape.placement.activations == Tier::kDevice;
    kept += (stays ? memory.output : 0) + (shape.recompute ? 0 : memory.kept);
  }
  floor[0] += kept * (shape.layer_major ? shape.micro_batches : 1);
  return floor;
}

// No step of this shape is shorter.
double time_floor(const StepShape& shape, const Rates& rates) {
  const auto over = [](double work, double rate) { return rate > 0 ? work / rate : 0; };
  const auto micro_batches = static_cast<double>(shape.micro_batches);
  double away = 0;
  double sent = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const GroupShape& group = shape.groups[static_cast<std::size_t>(g)];
    if (shape.placement.optimizer != Tier::kDevice) {
      away += static_cast<double>(owned_elems(shape, g) - device_elems(shape, g));
    }
    const auto wire = static_cast<double>((shape.dp - 1) * group.shard_elems);
    const bool each = shape.reduce_every == ReduceEvery::kMicroBatch;
    sent += 4 * wire * (each ? micro_batches : 1);
    const double gathers = group.resident || shape.layer_major ? 1 : micro_batches;
    sent += wire * static_cast<double>(size_of(shape.dtype)) * gathers;
  }
  const double compute = compute_floor(shape, rates) * micro_batches;
  const double host = over(away, rates.host_adam);
  const double comm = over(sent, rates.comm_bps);
  const bool on_disk = shape.placement.optimizer == Tier::kNvme;
  const double moved = on_disk ? away * static_cast<double>(away_state_bytes(shape)) : 0;
  const double reads = over(moved, rates.disk_read_bps);
  const double writes = over(moved, rates.disk_write_bps);
  const double disk = std::max({reads, writes, (reads + writes) / rates.disk_duplex});
  return rates.shared_cores ? std::max(compute + host + comm, disk)
                            : std::max({compute, host, comm, disk});
}

struct Candidate {
  EngineOptions options;
  double floor_s = 0;
  std::int64_t floor_missing = 0;
  int changes = 0;
};

// With two and three micro-batches, drawn out to as many as there are.
class Evaluator {
 public:
  Evaluator(Planner& planner, const TierBudgets& budgets) : planner_(planner), budgets_(budgets) {}

  RunPlan evaluate(const EngineOptions& options) {
    const std::int64_t micro_batches = micro_batches_of(options);
    if (micro_batches <= 3) return plan(options);
    RunPlan two = plan(with_micro_batches(options, 2));
    RunPlan three = plan(with_micro_batches(options, 3));
    const auto more = static_cast<double>(micro_batches - 3);
    three.time.step_s += more * (three.time.step_s - two.time.step_s);
    // In micro order a micro-batch more needs no memory; the slots of the arena may lie otherwise.
    const bool grows = options.train.accumulation_order == AccumulationOrder::kLayer;
    for (std::size_t t = 0; t < three.memory.tiers.size(); ++t) {
      const std::int64_t each = three.memory.tiers[t].peak - two.memory.tiers[t].peak;
      if (each > 0 && grows) three.memory.tiers[t].peak += (micro_batches - 3) * each;
      if (each < 0) three.memory.tiers[t].peak = two.memory.tiers[t].peak;
    }
    return three;
  }
  RunPlan plan(const EngineOptions& options) {
    RunPlan plan = planner_.plan({options, budgets_});
    plan.program = {};
    return plan;
  }

 private:
  static EngineOptions with_micro_batches(EngineOptions options, std::int64_t count) {
    options.train.global_batch = options.train.micro_batch * options.dp * count;
    return options;
  }

  Planner& planner_;
  TierBudgets budgets_;
};

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
    // What a larger micro-batch leaves for backward is more: where no smaller one can fit, it
    // cannot; but a step of one micro-batch needs no shards to sum in.
    bool any = true;
    for (const std::int64_t micro_batch : micro_batches()) {
      if (!any && micro_batch < samples_of_rank()) continue;
      const std::size_t before = candidates_.size();
      add_micro_batch(micro_batch);
      any =
          std::any_of(candidates_.begin() + static_cast<std::ptrdiff_t>(before), candidates_.end(),
                      [](const Candidate& candidate) { return candidate.floor_missing == 0; });
    }
    result_.candidates = static_cast<int>(candidates_.size());
    find_fastest();
    if (found_.empty()) find_nearest();
    finish();
    return std::move(result_);
  }

 private:
  struct Found {
    const Candidate* candidate;
    double step_s;
    std::int64_t missing;
  };

  std::int64_t samples_of_rank() const {
    const EngineOptions& options = question_.options;
    return options.train.micro_batch * micro_batches_of(options);
  }
  std::vector<std::int64_t> micro_batches() const {
    const std::int64_t samples = samples_of_rank();
    std::vector<std::int64_t> sizes{question_.options.train.micro_batch};
    for (std::int64_t size = 1; size <= std::min(samples, limits_.most_micro_batch); size *= 2) {
      if (samples % size == 0 && size != sizes.front()) sizes.push_back(size);
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }

  void add_micro_batch(std::int64_t micro_batch) {
    EngineOptions options = question_.options;
    options.train.global_batch = samples_of_rank() * options.dp;
    options.train.micro_batch = micro_batch;
    const bool several = micro_batches_of(options) > 1;
    for (int stage = 0; stage <= 3; ++stage) {
      if (options.zero.reduce_every == ReduceEvery::kStep && stage > 1) continue;
      options.zero.stage = stage;
      for (const Rung& rung : kLadder) {
        if (!has_meaning(rung, stage)) continue;
        if (!limits_.offload && rung.optimizer != Tier::kDevice) continue;
        EngineOptions placed = options;
        place(placed, rung);
        for (const AccumulationOrder order :
             {AccumulationOrder::kMicro, AccumulationOrder::kLayer}) {
          if (order == AccumulationOrder::kLayer && !several) continue;
          placed.train.accumulation_order = order;
          add_recompute(placed);
        }
      }
    }
  }

  void add_recompute(EngineOptions options) {
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      if (mode == RecomputeMode::kSelective && !options.model.explicit_units) continue;
      options.recompute.mode = mode;
      options.model.recompute_attention = mode == RecomputeMode::kSelective;
      for (const Tier inputs : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        if (inputs != Tier::kDevice && (mode != RecomputeMode::kFull || !limits_.offload)) continue;
        options.offload.activations = inputs;
        add(options);
      }
    }
  }

  void add(const EngineOptions& options) {
    const StepPlan plan = planner_.shape_of(options);
    Candidate candidate{options, time_floor(plan.shape, planner_.rates(options)), 0, 0};
    const TierBytes floor = memory_floor(plan.shape);
    for (std::size_t t = 0; t < floor.size(); ++t) {
      if (budgets_[t] > 0) {
        candidate.floor_missing += std::max<std::int64_t>(0, floor[t] - budgets_[t]);
      }
    }
    candidate.changes = static_cast<int>(differences(question_.options, options).size());
    candidates_.push_back(std::move(candidate));
  }

  bool evaluate(const Candidate& candidate, Found& found) {
    if (result_.evaluated >= allowed_) return false;
    ++result_.evaluated;
    const RunPlan plan = evaluator_.evaluate(candidate.options);
    found = {&candidate, plan.time.step_s, plan.missing()};
    return true;
  }

  void find_fastest() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return std::tie(a.floor_s, a.changes) < std::tie(b.floor_s, b.changes);
                     });
    for (const Candidate& candidate : candidates_) {
      if (candidate.floor_missing > 0) continue;
      const auto most = static_cast<std::size_t>(limits_.most);
      if (found_.size() >= most && candidate.floor_s >= found_.back().step_s) break;
      Found found{};
      if (!evaluate(candidate, found)) break;
      if (found.missing > 0) {
        near_.push_back(found);
        continue;
      }
      // A little memory is not worth a change: of two that are as fast, what changes less.
      const auto place = std::upper_bound(found_.begin(), found_.end(), found, faster);
      found_.insert(place, found);
      if (found_.size() > most) found_.pop_back();
    }
  }

  static bool faster(const Found& a, const Found& b) {
    return std::tie(a.step_s, a.candidate->changes) < std::tie(b.step_s, b.candidate->changes);
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
      if (std::ranges::find(near_, candidate, &Found::candidate) != near_.end()) continue;
      Found found{};
      if (!evaluate(*candidate, found)) break;
      near_.push_back(found);
    }
    if (!near_.empty()) found_.push_back(*std::ranges::min_element(near_, {}, &Found::missing));
  }

  // As it would run; where the drawing out was wrong about a fit, it is not suggested while another
  // one fits.
  void finish() {
    std::vector<Suggestion>& all = result_.suggestions;
    for (const Found& found : found_) {
      all.push_back({differences(question_.options, found.candidate->options),
                     evaluator_.plan(found.candidate->options)});
    }
    const auto misses = [](const Suggestion& s) { return !s.plan.fits(); };
    result_.any_fits = !std::all_of(all.begin(), all.end(), misses);
    if (result_.any_fits) {
      std::erase_if(all, misses);
    } else if (!all.empty()) {
      const auto missing = [](const Suggestion& s) { return s.plan.missing(); };
      std::iter_swap(all.begin(), std::ranges::min_element(all, {}, missing));
      all.erase(all.begin() + 1, all.end());
    }
    std::ranges::stable_sort(all, {}, [](const Suggestion& s) { return s.plan.time.step_s; });
  }

  Planner& planner_;
  const PlanQuestion& question_;
  SearchLimits limits_;
  int allowed_;  // evaluations
  Evaluator evaluator_;
  TierBytes budgets_;
  std::vector<Candidate> candidates_;
  std::vector<Found> found_;  // that fit, fastest first
  std::vector<Found> near_;   // that do not
  SearchResult result_;
};

}  // namespace

SearchResult suggest(Planner& planner, const PlanQuestion& question, const SearchLimits& limits) {
  return Search(planner, question, limits).run();
}

std::vector<FitRow> compare(Planner& planner, const PlanQuestion& question) {
  Evaluator evaluator(planner, question.budgets);
  std::vector<FitRow> rows;
  for (const Rung& rung : kLadder) {
    FitRow row{rung.name, {}};
    for (int stage = 0; stage <= 3; ++stage) {
      FitCell cell;
      EngineOptions options = question.options;
      options.zero.stage = stage;
      place(options, rung);
      const bool reduces = options.zero.reduce_every == ReduceEvery::kMicroBatch || stage < 2;
      cell.possible = has_meaning(rung, stage) && reduces;
      if (cell.possible) {
        const RunPlan plan = evaluator.evaluate(options);
        cell.fits = plan.fits();
        cell.device = plan.peak(Tier::kDevice);
        cell.host = plan.peak(Tier::kHost);
        cell.nvme = plan.peak(Tier::kNvme);
        cell.step_s = plan.time.step_s;
      }
      row.stages.push_back(cell);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice
