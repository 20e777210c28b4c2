#include "runtime/plan/search/search_text.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/plan/report_lines.hpp"
#include "runtime/plan/timeline.hpp"

namespace sluice {
namespace {

// set_line() on several lines that end in a backslash, so a shell reads one command.
std::string pasteable(const std::vector<Setting>& set) {
  constexpr std::size_t kIndent = 4;
  std::string text;
  std::size_t used = kReportWidth;
  for (const Setting& s : set) {
    const std::string one = set_line({s});
    if (used + 1 + one.size() + 2 > kReportWidth) {
      text += (text.empty() ? "" : " \\\n") + std::string(kIndent, ' ') + one;
      used = kIndent + one.size();
    } else {
      text += " " + one;
      used += 1 + one.size();
    }
  }
  return text + "\n";
}

std::string suggestion_text(const Suggestion& s) {
  const std::string header = s.with.empty() ? "" : "with " + s.with + " (other numbers):\n";
  constexpr std::size_t kTimeEnds = 11;  // column at which times end
  const std::string time = step_seconds_text(s.plan.time.step_s);
  std::vector<std::string> figures{time + " a step",
                                   format_count(s.plan.tokens_per_s()) + " tokens/s"};
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const std::int64_t need = s.plan.need(tier);
    if (need == 0 && tier != Tier::kDevice) continue;
    figures.push_back(std::string(name_of(tier)) + " " + format_bytes(need));
  }
  if (!s.plan.fits()) figures.push_back(format_bytes(s.plan.missing()) + " too much");
  return header + wrap_list(figures, kTimeEnds - std::min(kTimeEnds, time.size())) +
         (s.set.empty() ? "    as configured\n" : pasteable(s.set));
}

// Bytes of a host's ranks in the folder that the suggestion leaves open.
std::int64_t room_of_placeholder(const Suggestion& s) {
  const bool open = std::ranges::any_of(
      s.set, [](const Setting& setting) { return setting.value == kNvmePlaceholder; });
  return open ? nth(s.plan.node.peak, Tier::kNvme) : 0;
}

}  // namespace

std::string suggestions_text(const SearchResult& result) {
  std::string text =
      line("\nsuggestions: %d of %d configurations planned\n", result.evaluated, result.candidates);
  if (result.suggestions.empty()) text += "  nothing fits\n";
  if (!result.any_fits && !result.suggestions.empty()) text += "nothing fits; this misses least:\n";
  for (const Suggestion& s : result.suggestions) text += suggestion_text(s);
  for (const Suggestion& s : result.others) text += suggestion_text(s);
  std::int64_t room = 0;
  for (const auto* const list : {&result.suggestions, &result.others}) {
    for (const Suggestion& s : *list) room = std::max(room, room_of_placeholder(s));
  }
  if (room > 0) {
    text += line("%s: a folder on a drive; the ranks of a host need up to %s there\n",
                 kNvmePlaceholder, format_bytes(room).c_str());
  }
  return text;
}

namespace {

// Numbered reasons for table cells without figures; each reason appears once.
class Reasons {
 public:
  std::size_t number_of(const std::string& reason) {
    const auto found = std::find(all_.begin(), all_.end(), reason);
    const auto place = static_cast<std::size_t>(found - all_.begin());
    if (found == all_.end()) all_.push_back(reason);
    return place + 1;
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      text += wrap("(" + std::to_string(i + 1) + ") refused: " + all_[i]);
    }
    return text;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::string compare_text(const std::vector<FitRow>& rows) {
  Reasons reasons;
  std::string text = line("\n%-20s%15s%15s%15s%15s\n", "device of a rank", "stage 0", "stage 1",
                          "stage 2", "stage 3");
  for (const FitRow& row : rows) {
    std::string peaks = line("%-20s", row.name.c_str());
    std::string steps = line("%-20s", "");
    for (const FitCell& cell : row.stages) {
      const bool planned = cell.possible && cell.refused.empty();
      std::string peak;
      if (planned) {
        peak = line("%10s%5s", format_bytes(cell.device).c_str(), cell.fits ? " fits" : "  -  ");
      } else if (cell.possible) {
        peak = "- (" + std::to_string(reasons.number_of(cell.refused)) + ")  ";
      }
      peaks += line("%15s", peak.c_str());
      steps +=
          planned ? line("%10s     ", step_seconds_text(cell.step_s).c_str()) : line("%15s", "");
    }
    for (std::string* cells : {&peaks, &steps}) {
      cells->erase(cells->find_last_not_of(' ') + 1);
      text += *cells + "\n";
    }
  }
  text += "o optimizer, g gradients, p parameters; the second line is the step's time\n";
  return text + reasons.text();
}

}  // namespace sluice
