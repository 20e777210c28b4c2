#include "runtime/plan/memory_curve.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

// Between points of equal height, the point with the fullest slots is higher, as in add_up().
bool higher(const MemoryPoint& a, const MemoryPoint& b) {
  const auto slots = [](const MemoryPoint& point) {
    return std::accumulate(point.by_tag.begin(), point.by_tag.end(), std::int64_t{0});
  };
  return std::tuple(a.total, slots(a)) > std::tuple(b.total, slots(b));
}

// Keeps every point, or the highest and the last of each slice of time.
class Points {
 public:
  Points(double end_s, std::size_t expected, std::size_t most) {
    curve_.thinned = expected > most && end_s > 0;
    const std::size_t slices = most / 2;
    slice_s_ = curve_.thinned ? end_s / static_cast<double>(slices) : 0;
  }

  void add(const MemoryPoint& point) {
    if (!curve_.thinned) {
      curve_.points.push_back(point);
      return;
    }
    const auto slice = static_cast<std::int64_t>(point.at_s / slice_s_);
    if (open_ && slice != slice_) close();
    if (!open_ || higher(point, highest_)) {
      highest_ = point;
      highest_is_last_ = true;
    } else {
      highest_is_last_ = false;
    }
    last_ = point;
    slice_ = slice;
    open_ = true;
  }

  MemoryCurve take() {
    if (open_) close();
    return std::move(curve_);
  }

 private:
  void close() {
    curve_.points.push_back(highest_);
    if (!highest_is_last_) curve_.points.push_back(last_);
    open_ = false;
  }

  MemoryCurve curve_;
  double slice_s_ = 0;
  std::int64_t slice_ = 0;
  bool open_ = false;
  bool highest_is_last_ = true;
  MemoryPoint highest_;
  MemoryPoint last_;
};

MemoryPoint held_always(const Program& program, Tier tier) {
  MemoryPoint point;
  point.total = tier == Tier::kDevice ? program.arena_bytes
                : tier == Tier::kHost ? program.host_arena_bytes
                                      : 0;
  for (const StateRow& p : program.states.rows) {
    if (p.tier != tier) continue;
    point.total += p.tier_bytes();
    nth(point.by_tag, p.tag) += p.tier_bytes();
  }
  return point;
}

}  // namespace

MemoryCurve memory_curve(const Program& program, const std::vector<OpInterval>& timeline, Tier tier,
                         std::size_t most_points) {
  check(timeline.size() == program.ops.size(), "an interval for each operation");
  check(most_points >= 2, "a curve has two points");
  double end_s = 0;
  for (const OpInterval& op : timeline) end_s = std::max(end_s, op.end);
  Points points(end_s, 2 * program.ops.size() + 1, most_points);
  MemoryPoint now = held_always(program, tier);
  points.add(now);
  const auto change = [&](BufferId id, int sign) {
    const Buffer& buffer = nth(program.buffers, id);
    if (buffer.tier != tier) return;
    nth(now.by_tag, buffer.tag) += sign * buffer.bytes;
    if (!buffer.in_arena) now.total += sign * buffer.bytes;
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const bool computes = op.lane == Lane::kCompute;
    const std::int64_t workspace = tier == Tier::kDevice ? op.workspace_bytes : 0;
    if (computes) now.at_s = std::max(now.at_s, timeline[i].begin);
    for (const BufferId b : op.dead_before) change(b, -1);
    for (const BufferId b : op.live) change(b, +1);
    std::int64_t& tagged = nth(now.by_tag, tag_of_workspace(workspace));
    now.total += workspace;
    tagged += workspace;
    points.add(now);
    if (computes) now.at_s = std::max(now.at_s, timeline[i].end);
    now.total -= workspace;
    tagged -= workspace;
    for (const BufferId b : op.dead_after) change(b, -1);
    if (workspace > 0 || !op.dead_after.empty()) points.add(now);
  }
  return points.take();
}

}  // namespace sluice
