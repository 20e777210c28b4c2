#include "parallel/pipeline/schedule.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

// Alternates forwards and backwards, with `ahead` extra forwards before the first backward.
std::vector<Slot> alternate(const std::vector<Slot>& forwards, const std::vector<Slot>& backwards,
                            std::size_t ahead) {
  std::vector<Slot> slots;
  slots.reserve(forwards.size() + backwards.size());
  for (std::size_t i = 0; i < backwards.size() + ahead; ++i) {
    if (i < forwards.size()) slots.push_back(forwards[i]);
    if (i >= ahead) slots.push_back(backwards[i - ahead]);
  }
  return slots;
}

// All micro-batches in groups of `group`; within a group, chunk after chunk.
std::vector<Slot> in_groups(SlotKind kind, int chunks, int micro_batches, int group) {
  std::vector<Slot> slots;
  for (int first = 0; first < micro_batches; first += group) {
    for (int c = 0; c < chunks; ++c) {
      const int chunk = kind == SlotKind::kForward ? c : chunks - 1 - c;
      for (int m = first; m < first + group; ++m) slots.push_back({kind, chunk, m});
    }
  }
  return slots;
}

std::vector<Slot> interleave(const PipelineRun& run, int stage) {
  const int p = run.stages;
  const int padded = (run.micro_batches + p - 1) / p * p;
  const std::vector<Slot> forwards = in_groups(SlotKind::kForward, run.virtual_stages, padded, p);
  const std::vector<Slot> backwards = in_groups(SlotKind::kBackward, run.virtual_stages, padded, p);
  const int ahead =
      std::min(2 * (p - 1 - stage) + (run.virtual_stages - 1) * p, padded * run.virtual_stages);
  std::vector<Slot> slots = alternate(forwards, backwards, static_cast<std::size_t>(ahead));
  std::erase_if(slots, [&](const Slot& slot) { return slot.micro_batch >= run.micro_batches; });
  return slots;
}

// Splits each backward. While forwards remain, the gradients of the weights run `put_off`
// micro-batches late; afterwards one of them runs in each gap between two input gradients.
std::vector<Slot> split_backwards(const std::vector<Slot>& slots, int put_off, int micro_batches,
                                  int ahead) {
  std::vector<Slot> split;
  int next = 0;  // micro-batch of the next gradients of the weights
  for (const Slot& slot : slots) {
    if (slot.kind == SlotKind::kForward) {
      split.push_back(slot);
      continue;
    }
    split.push_back({SlotKind::kBackwardInput, slot.chunk, slot.micro_batch});
    const bool draining = slot.micro_batch >= micro_batches - ahead;
    if (draining || slot.micro_batch >= put_off) {
      split.push_back({SlotKind::kBackwardWeights, slot.chunk, next++});
    }
  }
  while (next < micro_batches) split.push_back({SlotKind::kBackwardWeights, 0, next++});
  return split;
}

}  // namespace

void check_pipeline_run(const PipelineRun& run) {
  if (run.stages < 1 || run.virtual_stages < 1 || run.micro_batches < 1) {
    throw ConfigError("pipeline: stages, virtual stages and micro-batches are at least 1");
  }
  const bool interleaved = run.schedule == PipelineSchedule::kInterleaved;
  if (run.virtual_stages > 1 && !interleaved) {
    throw ConfigError("parallel.virtual_stages = " + std::to_string(run.virtual_stages) +
                      " needs parallel.schedule: interleaved");
  }
  if (interleaved && run.virtual_stages == 1 && run.stages > 1) {
    throw ConfigError(
        "parallel.schedule: interleaved needs parallel.virtual_stages of at least 2; with 1 it is "
        "1f1b");
  }
}

std::vector<Slot> list_slots(const PipelineRun& run, int stage) {
  check_pipeline_run(run);
  check(stage >= 0 && stage < run.stages, "a stage of the pipeline");
  if (run.schedule == PipelineSchedule::kInterleaved) return interleave(run, stage);
  const int m = run.micro_batches;
  const bool all = run.schedule == PipelineSchedule::kGpipe;
  const int ahead = all ? m : std::min(run.stages - 1 - stage, m);
  const std::vector<Slot> slots =
      alternate(in_groups(SlotKind::kForward, 1, m, m), in_groups(SlotKind::kBackward, 1, m, m),
                static_cast<std::size_t>(ahead));
  return run.schedule == PipelineSchedule::kZeroBubble ? split_backwards(slots, stage, m, ahead)
                                                       : slots;
}

int in_flight_limit(const PipelineRun& run, int stage) {
  const int p = run.stages;
  const int m = run.micro_batches;
  switch (run.schedule) {
    case PipelineSchedule::kGpipe:
      return m;
    case PipelineSchedule::kInterleaved:
      return std::min(2 * (p - 1 - stage) + (run.virtual_stages - 1) * p + 1,
                      m * run.virtual_stages);
    default:
      return std::min(m, p - stage);
  }
}

double SlotCosts::of(SlotKind kind) const {
  switch (kind) {
    case SlotKind::kForward:
      return forward;
    case SlotKind::kBackward:
      return backward_input + backward_weights;
    case SlotKind::kBackwardInput:
      return backward_input;
    case SlotKind::kBackwardWeights:
      return backward_weights;
  }
  return 0;
}

SlotPeer peer_of(const Slot& slot, int stage, int stages, int virtual_stages, bool sends) {
  if (slot.kind == SlotKind::kBackwardWeights) return {};
  const bool forward = slot.kind == SlotKind::kForward;
  const int step = forward == sends ? 1 : -1;
  const int model_stage = slot.chunk * stages + stage + step;
  if (model_stage < 0 || model_stage >= stages * virtual_stages) return {};
  return {model_stage % stages, {slot.kind, model_stage / stages, slot.micro_batch}};
}

namespace {

// A value for each slot of each stage.
template <typename T>
class SlotTable {
 public:
  SlotTable(const std::vector<std::vector<Slot>>& slots, T missing) : missing_(missing) {
    for (const auto& stage : slots) {
      for (const Slot& slot : stage) {
        chunks_ = std::max(chunks_, slot.chunk + 1);
        micro_batches_ = std::max(micro_batches_, slot.micro_batch + 1);
      }
    }
    values_.assign(slots.size() * kKinds * static_cast<std::size_t>(chunks_) *
                       static_cast<std::size_t>(micro_batches_),
                   missing);
  }
  T& at(int stage, const Slot& slot) {
    const auto size = [](int n) { return static_cast<std::size_t>(n); };
    const std::size_t kind = size(stage) * kKinds + static_cast<std::size_t>(slot.kind);
    const std::size_t chunk = kind * size(chunks_) + size(slot.chunk);
    return values_[chunk * size(micro_batches_) + size(slot.micro_batch)];
  }
  [[nodiscard]] bool has(int stage, const Slot& slot) {
    return slot.chunk < chunks_ && slot.micro_batch < micro_batches_ && at(stage, slot) != missing_;
  }
  [[nodiscard]] int chunks() const { return chunks_; }

 private:
  static constexpr int kKinds = 4;
  T missing_;
  int chunks_ = 1;
  int micro_batches_ = 1;
  std::vector<T> values_;
};

}  // namespace

std::vector<std::vector<SlotTime>> time_slots(const std::vector<std::vector<Slot>>& slots,
                                              const SlotCosts& costs) {
  const auto stages = static_cast<int>(slots.size());
  std::vector<std::vector<SlotTime>> times(slots.size());
  SlotTable<double> made(slots, -1);
  for (bool moves = true; moves;) {
    moves = false;
    for (int s = 0; s < stages; ++s) {
      const auto& order = nth(slots, s);
      auto& mine = nth(times, s);
      while (mine.size() < order.size()) {
        const Slot& slot = order[mine.size()];
        double begin = mine.empty() ? 0 : mine.back().end;
        const SlotPeer source = peer_of(slot, s, stages, made.chunks(), false);
        if (source.stage >= 0) {
          if (!made.has(source.stage, source.slot)) break;
          begin = std::max(begin, made.at(source.stage, source.slot));
        }
        mine.push_back({begin, begin + costs.of(slot.kind)});
        made.at(s, slot) = mine.back().end;
        moves = true;
      }
    }
  }
  for (std::size_t s = 0; s < slots.size(); ++s) {
    check(times[s].size() == slots[s].size(), "the slots of a pipeline wait for each other");
  }
  return times;
}

std::vector<int> slots_after_sends(const PipelineRun& run, int stage) {
  std::vector<std::vector<Slot>> slots;
  for (int s = 0; s < run.stages; ++s) slots.push_back(list_slots(run, s));
  const auto times = time_slots(slots);
  const auto& mine = nth(slots, stage);
  const auto& my_times = nth(times, stage);
  SlotTable<int> index(slots, -1);
  for (int s = 0; s < run.stages; ++s) {
    const auto& order = nth(slots, s);
    for (std::size_t k = 0; k < order.size(); ++k) index.at(s, order[k]) = static_cast<int>(k);
  }
  std::vector<int> after;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const SlotPeer peer = peer_of(mine[k], stage, run.stages, run.virtual_stages, true);
    if (peer.stage < 0) {
      after.push_back(-1);
      continue;
    }
    // The peer posts the receive one slot before the slot that needs the data, that is, when the
    // slot two before has ended.
    const auto user = static_cast<std::size_t>(index.at(peer.stage, peer.slot));
    const auto& peer_times = nth(times, peer.stage);
    const double posted = user < 2 ? 0 : peer_times[user - 2].end;
    const double sent = std::max(my_times[k].end, posted);
    std::size_t next = k + 2;
    while (next < mine.size() && my_times[next].begin < sent) ++next;
    after.push_back(static_cast<int>(std::min(next, mine.size())));
  }
  return after;
}

}  // namespace sluice
