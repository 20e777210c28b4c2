#include "runtime/plan/lane_bars.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

constexpr int kWrites = kLaneCount;  // the disk's second row
constexpr int kTensor = kLaneCount + 1;

int row_of(const Op& op) {
  return op.lane == Lane::kDisk && writes_disk(op.kind) ? kWrites : static_cast<int>(op.lane);
}

// Merges short bars that touch the same slice, so a row keeps at most two bars per slice.
std::vector<LaneBar> merge_short(const std::vector<LaneBar>& bars, double slice_s) {
  std::vector<LaneBar> merged;
  double longest = 0;  // of the operations of the last bar
  for (const LaneBar& bar : bars) {
    const double length = bar.end_s - bar.begin_s;
    const bool joins = !merged.empty() && merged.back().row == bar.row && length < slice_s &&
                       bar.end_s - merged.back().begin_s <= slice_s;
    if (!joins) {
      merged.push_back(bar);
      longest = length;
      continue;
    }
    LaneBar& last = merged.back();
    last.end_s = std::max(last.end_s, bar.end_s);
    last.busy_s += bar.busy_s;
    last.count += bar.count;
    last.bytes += bar.bytes;
    if (length > longest) {
      longest = length;
      last.op = bar.op;
    }
  }
  return merged;
}

}  // namespace

const char* bar_row_name(int row) {
  static constexpr std::array<const char*, kBarRows> kNames{
      "compute", "comm", "host", "d2h", "h2d", "disk read", "pipe", "disk write", "tensor"};
  return kNames.at(static_cast<std::size_t>(row));
}

bool bar_row_sends(int row) {
  return row == kTensor || row == static_cast<int>(Lane::kCompute) ||
         row == static_cast<int>(Lane::kComm) || row == static_cast<int>(Lane::kPipe);
}

LaneBars lane_bars(const Program& program, const TimeReport& time, std::size_t most_bars) {
  const std::vector<OpInterval>& timeline = time.timeline;
  check(timeline.size() == program.ops.size(), "an interval for each operation");
  LaneBars result;
  double end_s = 0;
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    const Op& op = program.ops[i];
    const double length = timeline[i].end - timeline[i].begin;
    end_s = std::max(end_s, timeline[i].end);
    if (length <= 0) {
      ++result.instant;
      continue;
    }
    result.bars.push_back({row_of(op), static_cast<OpId>(i), 1, timeline[i].begin, timeline[i].end,
                           length, sent_bytes(program, op) + op.moved_bytes});
  }
  for (const ExchangeInterval& e : time.exchanges) {
    if (e.end <= e.begin) continue;
    const Op& op = nth(program.ops, e.op);
    const Exchange& exchange = nth(exchanges_of(program, op), e.index);
    result.bars.push_back(
        {kTensor, e.op, 1, e.begin, e.end, e.end - e.begin, exchange.bytes * exchange.times});
  }
  std::stable_sort(result.bars.begin(), result.bars.end(), [](const LaneBar& a, const LaneBar& b) {
    return a.row != b.row ? a.row < b.row : a.begin_s < b.begin_s;
  });
  if (result.bars.size() > most_bars) {
    const auto slices = static_cast<double>(std::max<std::size_t>(1, most_bars / (2 * kBarRows)));
    result.bars = merge_short(result.bars, end_s / slices);
    result.merged = true;
  }
  return result;
}

}  // namespace sluice
