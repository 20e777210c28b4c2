#include "runtime/plan/search/search.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cpu/parallel.hpp"
#include "runtime/plan/search/candidate_list.hpp"
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
      : question_(question),
        limits_(limits),
        allowed_(limits.evaluations),
        evaluator_(planner, question.budgets),
        candidates_(list_candidates(planner, question, limits)) {}

  SearchResult run() {
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

  // The next candidates to evaluate are those from i on, unless the search ends before. Plans as
  // many of them side by side as there are compute threads. Each holds a program.
  void look_ahead(const std::vector<const Candidate*>& order, std::size_t i) {
    if (evaluator_.has_ahead(order[i]->options)) return;
    constexpr int kMostAtOnce = 16;
    const int count = std::min({compute_threads(), allowed_ - result_.evaluated, kMostAtOnce});
    std::vector<const EngineOptions*> options;
    for (; i < order.size() && std::ssize(options) < count; ++i) {
      const EngineOptions& next = order[i]->options;
      if (!evaluator_.has_ahead(next)) options.push_back(&next);
    }
    evaluator_.look_ahead(options);
  }

  void find_fastest() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return std::tie(a.floor_s, a.changes) < std::tie(b.floor_s, b.changes);
                     });
    std::vector<const Candidate*> order;
    for (const Candidate& candidate : candidates_) {
      if (candidate.floor_missing == 0) order.push_back(&candidate);
    }
    // The bounds of some meshes are far below their times. After kVain candidates in a row that are
    // not the fastest, the rest of a mesh comes last.
    constexpr int kVain = 8;
    std::map<std::tuple<int, int, int, PipelineSchedule>, int> vain;
    const std::size_t once = order.size();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Candidate& candidate = *order[i];
      if (limits_.below_s > 0 && candidate.floor_s >= kNear * limits_.below_s) continue;
      const auto most = static_cast<std::size_t>(limits_.most);
      if (found_.size() >= most && candidate.floor_s >= found_[most - 1].step_s) continue;
      const ParallelOptions& mesh = candidate.options.parallel;
      int& in_vain = vain[{mesh.tensor, mesh.pipeline, mesh.virtual_stages, mesh.schedule}];
      if (i < once && in_vain >= kVain) {
        order.push_back(&candidate);
        continue;
      }
      look_ahead(order, i);
      Found found{};
      if (!evaluate(candidate, found)) {
        result_.spent = true;
        break;
      }
      ++in_vain;
      if (found.missing > 0) {
        near_.push_back(found);
        continue;
      }
      if (found_.empty() || found.step_s < found_.front().step_s) in_vain = 0;
      // Of equally fast candidates, fewest changes come first: less memory alone is no reason.
      insert(found_, found);
    }
  }

  // Where the fastest plan has its optimizer on NVMe, or nothing fits: the optimizer on the host
  // but for what the device has room for.
  void share_with_device() {
    constexpr int kMost = 24;
    const bool fits =
        !found_.empty() && found_.front().candidate->options.offload.optimizer != Tier::kNvme;
    if (!limits_.offload || fits) return;
    allowed_ = result_.evaluated + kMost;
    std::vector<const Candidate*> order = host_placements(candidates_);
    std::erase_if(order, [&](const Candidate* c) { return c->chunks > limits_.most_chunks; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      look_ahead(order, i);
      Found plain{};
      if (!evaluate(*order[i], plain)) return;
      if (plain.device_fraction == 0) continue;
      const Candidate* const shared = further(plain, with_device_fraction(plain));
      if (shared == nullptr) continue;
      Found found{};
      if (!evaluate(*shared, found)) return;
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
    const auto too_long = std::ranges::find_if(
        order, [&](const Candidate* c) { return c->chunks > limits_.most_chunks; });
    order.erase(too_long, order.end());
    std::erase_if(order, [&](const Candidate* candidate) {
      return std::ranges::find(near_, candidate, &Found::candidate) != near_.end();
    });
    allowed_ = result_.evaluated + limits_.evaluations;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Candidate& candidate = *order[i];
      if (!near_.empty()) {
        const Found& best = *std::ranges::min_element(near_, {}, &Found::missing);
        if (best.missing == 0 || candidate.floor_missing >= best.missing) break;
      }
      look_ahead(order, i);
      Found found{};
      if (!evaluate(candidate, found)) break;
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
    const std::vector<const Candidate*> others = other_placements(candidates_, found_);
    for (std::size_t i = 0; i < others.size(); ++i) {
      look_ahead(others, i);
      Found found{};
      if (evaluate(*others[i], found)) starts.push_back(found);
    }
    for (const Found& plain : found_) {
      if (plain.step_s > kNear * found_.front().step_s) break;
      starts.push_back(plain);
    }
    std::vector<Found> plains;  // of each candidate of `order`
    std::vector<const Candidate*> order;
    const auto add = [&](const Found& plain, Candidate changed) {
      const Candidate* const candidate = further(plain, std::move(changed));
      if (candidate == nullptr) return;
      plains.push_back(plain);
      order.push_back(candidate);
    };
    for (const Found& plain : starts) {
      const EngineOptions& options = plain.candidate->options;
      if (options.offload.optimizer == Tier::kDevice || plain.missing > 0) continue;
      if (plain.host_fraction > options.offload.host_fraction) {
        add(plain, with_host_fraction(plain));
      }
      for (const Extra extra : {Extra{true, false}, Extra{false, true}, Extra{true, true}}) {
        if (extra.on_device && plain.device_fraction == 0) continue;
        Candidate candidate = extra.on_device ? with_device_fraction(plain) : *plain.candidate;
        if (extra.early) speculate(candidate.options);
        add(plain, std::move(candidate));
      }
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      look_ahead(order, i);
      try_further(plains[i], order[i], kRounds);
    }
  }

  static void speculate(EngineOptions& options) {
    if (options.parallel.pipeline == 1) options.offload.speculate = Speculation::kAuto;
  }

  // Tries the fastest plan with speculative updates, since refine() may have changed its shares,
  // and then with more prefetched units.
  void polish() {
    constexpr int kMost = 6;
    allowed_ = result_.evaluated + kMost;
    if (found_.front().candidate->options.offload.optimizer != Tier::kDevice) {
      const Found plain = found_.front();
      Candidate early = *plain.candidate;
      speculate(early.options);
      try_further(plain, further(plain, std::move(early)), 0);
    }
    const Found plain = found_.front();
    const EngineOptions& options = plain.candidate->options;
    const bool gathers = options.dp > 1 || options.offload.parameters != Tier::kDevice;
    if (options.zero.stage < 3 || !gathers) return;
    for (const int units : {8, 4, 2}) {
      if (options.zero.prefetch_units >= units || found_.front().step_s < plain.step_s) return;
      if (units > options.model.layers + 1) continue;  // all units but the one that runs
      Candidate ahead = *plain.candidate;
      ahead.options.zero.prefetch_units = units;
      try_further(plain, further(plain, std::move(ahead)), 0);
    }
  }

  // Keeps a changed candidate. Null if it is no other one, or not allowed.
  const Candidate* further(const Found& plain, Candidate changed) {
    const std::size_t more = differences(plain.candidate->options, changed.options).size();
    if (more == 0 || (limits_.allowed && !limits_.allowed(changed.options))) return nullptr;
    changed.changes = plain.candidate->changes + static_cast<int>(more);
    return &further_.emplace_back(std::move(changed));
  }

  // Also with more states on the host, where these fit, and with all of them there instead of on
  // NVMe. Fewer states on NVMe have fewer second places of early updates on the host: hence
  // `rounds`.
  static constexpr int kRounds = 2;
  void try_further(const Found& plain, const Candidate* candidate, int rounds) {
    Found better{};
    if (candidate == nullptr || !evaluate(*candidate, better) || better.missing > 0) return;
    if (better.step_s <= kWorthwhile * plain.step_s) insert(found_, better);
    if (rounds == 0) return;
    if (better.host_fraction > candidate->options.offload.host_fraction) {
      try_further(plain, further(plain, with_host_fraction(better)), rounds - 1);
    }
    if (may_be_all_on_host(better)) {
      try_further(plain, further(plain, with_all_on_host(better)), 0);
    }
  }

  // If nothing fits: tries the nearest misses of stage 3 without prefetched units, which is slower.
  void gather_late() {
    constexpr std::size_t kMost = 16;
    std::vector<const Candidate*> order;
    std::ranges::stable_sort(near_, {}, &Found::missing);
    for (const Found& miss : near_) {
      Candidate candidate = *miss.candidate;
      if (candidate.options.zero.stage < 3 || candidate.options.zero.prefetch_units == 0) continue;
      candidate.options.zero.prefetch_units = 0;
      ++candidate.changes;
      order.push_back(&further_.emplace_back(std::move(candidate)));
      if (order.size() == kMost) break;
    }
    allowed_ = result_.evaluated + static_cast<int>(kMost);
    for (std::size_t i = 0; i < order.size(); ++i) {
      look_ahead(order, i);
      Found found{};
      if (!evaluate(*order[i], found)) break;
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
                     micro_batches_of(options) <= kMostWritten ? evaluator_.plan_in_full(options)
                                                               : evaluator_.evaluate(options),
                     options});
    }
    result_.any_fits = keep_best(all, limits_.most);
  }

  const PlanQuestion& question_;
  SearchLimits limits_;
  int allowed_;  // evaluations
  Evaluator evaluator_;
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
