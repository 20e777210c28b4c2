#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"
#include "runtime/report/report_json.hpp"

namespace sluice {
namespace {

// Drops the middle of a kind's marks. `marks` are in order.
std::vector<Mark> thinned(std::vector<Mark> marks, std::int64_t& left_out) {
  std::map<std::string, std::size_t> total, seen;
  for (const Mark& mark : marks) ++total[mark.kind];
  std::vector<Mark> kept;
  for (Mark& mark : marks) {
    const std::size_t place = seen[mark.kind]++;
    const std::size_t all = total[mark.kind];
    if (all > kMostMarks && place >= kMostMarks / 2 && place + kMostMarks / 2 < all) {
      ++left_out;
      continue;
    }
    kept.push_back(std::move(mark));
  }
  return kept;
}

}  // namespace

std::vector<Mark> marks_of(const RunData& run, std::int64_t& left_out) {
  left_out = 0;
  std::vector<Mark> marks;
  std::set<std::int64_t> skipped;
  bool saves = false;
  std::int64_t step = 0;  // of the event before, which one without a step of its own takes
  for (const EventLine& event : run.events) {
    if (event.step >= 0) step = event.step;
    if (event.kind == "skipped") skipped.insert(event.step);
    saves = saves || event.kind == "save" || event.kind == "save_begun";
    marks.push_back(
        {.kind = event.kind, .text = event.text, .step = step, .unix_seconds = event.unix_seconds});
  }
  for (const std::int64_t overflowed : run.steps.skipped) {
    if (skipped.contains(overflowed)) continue;
    marks.push_back(
        {.kind = "skipped",
         .text = format_text("step {} made no update: its gradients overflowed", overflowed),
         .step = overflowed});
  }
  if (!saves) {
    for (const auto& [stalled, ms] : run.steps.stalls) {
      marks.push_back({.kind = "save",
                       .text = format_text("the steps stood still {:.0f} ms for a checkpoint", ms),
                       .step = stalled});
    }
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.step < b.step; });
  return thinned(std::move(marks), left_out);
}

}  // namespace sluice
