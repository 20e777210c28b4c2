#include "runtime/run/report/non_finite.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/launch/watchdog.hpp"

namespace sluice {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "nan";  // with either sign bit
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", value);
  return digits;
}

// The first parameter of which this rank owns an element that is not finite; "" if there is none.
std::string damaged_weight_here(Engine& engine, Watchdog& watchdog) {
  constexpr std::int64_t kAtOnce = 1 << 18;
  std::vector<float> staging(kAtOnce);
  for (const StatePiece& piece : engine.owned_pieces()) {
    for (std::int64_t first = 0; first < piece.elems(); first += kAtOnce) {
      const auto count = static_cast<std::size_t>(std::min(kAtOnce, piece.elems() - first));
      const std::span<float> values = std::span(staging).first(count);
      engine.read_state(piece, StateKind::kMaster, first, values);
      if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
        return piece.name;
      }
    }
    watchdog.pulse();
  }
  return "";
}

std::string damaged_weight(Engine& engine, Communicator& comm, Watchdog& watchdog) {
  engine.settle();
  const std::string here = damaged_weight_here(engine, watchdog);
  // Other ranks may have more weights to look at.
  const PhaseScope waiting(watchdog, "looking for damaged weights", Waiting::kYes);
  for (const std::string& name : exchange_text(comm, here)) {
    if (!name.empty()) return name;
  }
  return "";
}

}  // namespace

TrainingError non_finite_error(Engine& engine, Communicator& comm, Watchdog& watchdog,
                               std::int64_t step, const StepResult& result, bool updated) {
  const std::string made = "step " + std::to_string(step) + ": loss " + value_text(result.loss) +
                           ", grad norm " + value_text(result.grad_norm) +
                           "; the first non-finite value is made by " +
                           engine.find_non_finite(step) + ". ";
  const std::string weight = damaged_weight(engine, comm, watchdog);
  if (weight.empty()) {
    return TrainingError(made +
                         "All weights are finite. A lower optimizer.lr, longer warm-up or "
                         "train.clip usually cures this");
  }
  const std::string why = made + "Weight " + weight + " is not finite";
  if (updated) {
    return TrainingError(why +
                         "; go on from an earlier checkpoint, with a lower optimizer.lr if "
                         "the same happens again");
  }
  return TrainingError(why +
                       ", and no step has updated it: the weights that the run began with "
                       "are damaged; begin with another copy of them");
}

}  // namespace sluice
