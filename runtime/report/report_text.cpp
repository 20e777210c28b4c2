#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/format.hpp"
#include "runtime/report/downsample.hpp"
#include "runtime/report/report_json.hpp"

namespace sluice {
namespace {

std::string run_line(const RunData& run) {
  const StepColumns& steps = run.steps;
  if (steps.size() == 0) return run.name + ": no steps yet\n";
  std::string text = run.name + ": " + counted(steps.step.back(), "step");
  const float loss = steps.of(Channel::kLoss).back();
  if (std::isfinite(loss)) text += format_text(", loss {:.4f}", loss);
  const auto best =
      std::min_element(steps.evaluations.begin(), steps.evaluations.end(),
                       [](const Evaluation& a, const Evaluation& b) { return a.loss < b.loss; });
  if (best != steps.evaluations.end()) {
    text += format_text(", best validation loss {:.4f} (step {})", best->loss, best->step);
  }
  text += format_text(", {} tokens", format_count(static_cast<double>(steps.tokens.back())));
  const float rate = median(steps.of(Channel::kTokensPerSecond));
  if (rate > 0) text += format_text(", {} tokens/s", format_count(static_cast<double>(rate)));
  if (!steps.skipped.empty()) text += ", " + counted(std::ssize(steps.skipped), "skipped step");
  return text + "\n";
}

}  // namespace

std::string runs_text(const std::vector<const RunData*>& runs) {
  std::string text;
  for (const RunData* run : runs) text += run_line(*run);
  return text;
}

}  // namespace sluice
