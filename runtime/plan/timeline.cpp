#include "runtime/plan/timeline.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <map>
#include <vector>

#include "base/index.hpp"

namespace sluice {
namespace {

constexpr int kLabel = 10;  // columns of a lane's name

using Shares = std::map<char, double>;  // of a column, by letter

char symbol_of(const Shares& shares, double slice) {
  double work = 0;
  const auto most =
      std::max_element(shares.begin(), shares.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [letter, seconds] : shares) work += seconds;
  if (most == shares.end() || work < slice / 100) return '.';
  return work * 2 >= slice
             ? most->first
             : static_cast<char>(std::tolower(static_cast<unsigned char>(most->first)));
}

}  // namespace

char timeline_letter(OpKind kind) {
  switch (kind) {
    case OpKind::kForward:
      return 'F';
    case OpKind::kLossHead:
      return 'L';
    case OpKind::kBackwardWeights:
      return 'W';
    case OpKind::kSendActivation:
    case OpKind::kReceiveActivation:
    case OpKind::kSendGradient:
    case OpKind::kReceiveGradient:
      return 'X';
    case OpKind::kBackward:
      return 'B';
    case OpKind::kMeet:
    case OpKind::kNormAndScale:
    case OpKind::kSumSquares:
      return 'N';
    case OpKind::kUpdate:
      return 'U';
    case OpKind::kGather:
    case OpKind::kGatherGrads:
      return 'G';
    case OpKind::kReduceGrads:
    case OpKind::kRoundGrads:
    case OpKind::kAddGrads:
    case OpKind::kAddReplicas:
      return 'R';
    case OpKind::kReadShard:
    case OpKind::kFetchShard:
    case OpKind::kCopyParams:
    case OpKind::kWriteParams:
      return 'P';
    case OpKind::kSaveInput:
    case OpKind::kWriteInput:
    case OpKind::kReadInput:
    case OpKind::kFetchInput:
      return 'A';
    default:
      return 'S';
  }
}

std::string step_seconds_text(double seconds) {
  std::array<char, 32> text{};
  if (seconds >= 100) {
    std::snprintf(text.data(), text.size(), "%.0f s", seconds);
  } else if (seconds >= 1) {
    std::snprintf(text.data(), text.size(), "%.2f s", seconds);
  } else if (seconds >= 1e-3) {
    std::snprintf(text.data(), text.size(), "%.3g ms", seconds * 1e3);
  } else {
    std::snprintf(text.data(), text.size(), "%.3g us", seconds * 1e6);
  }
  return text.data();
}

namespace {

using Row = std::vector<Shares>;  // by column; empty: the lane has no work
using LaneRows = std::array<Row, static_cast<std::size_t>(kLaneCount)>;

double end_of(const TimeReport& time) {
  double end = 0;
  for (const OpInterval& op : time.timeline) end = std::max(end, op.end);
  return end;
}

void add_work(Row& lane, const OpInterval& op, char letter, double slice, int columns) {
  if (op.end <= op.begin) return;
  lane.resize(static_cast<std::size_t>(columns));
  const int first = std::clamp(static_cast<int>(op.begin / slice), 0, columns - 1);
  const int last = std::clamp(static_cast<int>(op.end / slice), 0, columns - 1);
  for (int c = first; c <= last; ++c) {
    const double part = std::min(op.end, (c + 1) * slice) - std::max(op.begin, c * slice);
    if (part > 0) nth(lane, c)[letter] += part;
  }
}

LaneRows rows_of(const Program& program, const TimeReport& time, double slice, int columns) {
  LaneRows lanes;
  for (std::size_t i = 0; i < time.timeline.size(); ++i) {
    const OpInterval& op = time.timeline[i];
    Row& lane = nth(lanes, program.ops[i].lane);
    add_work(lane, op, timeline_letter(program.ops[i].kind), slice, columns);
  }
  return lanes;
}

// The row of exchanges inside operations of the compute lane.
Row exchange_row(const TimeReport& time, double slice, int columns) {
  Row row;
  for (const ExchangeInterval& e : time.exchanges)
    add_work(row, {e.begin, e.end}, 'T', slice, columns);
  return row;
}

std::string row_text(std::string label, const Row& row, double slice) {
  label.resize(kLabel, ' ');
  for (const Shares& shares : row) label += symbol_of(shares, slice);
  return label + "\n";
}

}  // namespace

std::string draw_timeline(const Program& program, const TimeReport& time, int width) {
  const double end = end_of(time);
  const int columns = width - kLabel;
  if (end <= 0 || columns <= 0) return "";
  const double slice = end / columns;
  const LaneRows lanes = rows_of(program, time, slice, columns);
  std::string text;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane].empty()) continue;
    text += row_text(std::string(name_of(static_cast<Lane>(lane))), lanes[lane], slice);
    if (lane != static_cast<std::size_t>(Lane::kCompute)) continue;
    const Row tensor = exchange_row(time, slice, columns);
    if (!tensor.empty()) text += row_text("tensor", tensor, slice);
  }
  return text;
}

std::string draw_stages(std::span<const StageRow> stages, int width) {
  double end = 0;
  for (const StageRow& stage : stages) end = std::max(end, end_of(*stage.time));
  const int columns = width - kLabel;
  if (end <= 0 || columns <= 0) return "";
  std::string text;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const LaneRows lanes = rows_of(*stages[s].program, *stages[s].time, end / columns, columns);
    const Row& compute = nth(lanes, Lane::kCompute);
    if (!compute.empty()) text += row_text("stage " + std::to_string(s), compute, end / columns);
  }
  return text;
}

}  // namespace sluice
