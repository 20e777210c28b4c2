// The steps of a run as columns: what metrics.jsonl has, 100 bytes a step. Values that a line lacks
// are NaN. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

enum class Channel {
  kLoss,
  kGradNorm,
  kLr,
  kLossScale,
  kStepMs,
  kTokensPerSecond,
  kMfu,
  kMfuOfCard,
  kForward,
  kBackward,
  kComm,
  kOptimizer,
  kIo,
  kData,
  kDevicePeak,
  kHostPeak,
  kPinned,
  kNvme,
  kResidentPeak,
};
inline constexpr std::size_t kChannels = 19;
// Place of a channel in a line: "timers_ms.forward".
[[nodiscard]] std::string_view key_of(Channel channel);

struct Evaluation {
  std::int64_t step = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> sets;  // of data.valid_sets, by name
};

// One line of metrics.jsonl.
struct StepLine {
  std::int64_t step = 0;  // 0: the line has none
  std::int64_t tokens = 0;
  bool skipped = false;
  std::array<float, kChannels> values{};
  double checkpoint_ms = 0;
  double eval_loss = 0;  // NaN: the step did not evaluate
  std::vector<std::pair<std::string, double>> eval_sets;
};
// False where the text is no JSON object with a step of 1 or more. Pure.
[[nodiscard]] bool parse_step_line(std::string_view text, StepLine& line);

struct StepColumns {
  std::vector<std::int64_t> step;  // rises
  std::vector<std::int64_t> tokens;
  std::vector<double> seconds;  // sum of the steps' times
  std::array<std::vector<float>, kChannels> values;
  std::vector<Evaluation> evaluations;
  std::vector<std::int64_t> skipped;
  std::vector<std::pair<std::int64_t, double>>
      stalls;  // steps that waited for a save: milliseconds

  [[nodiscard]] const std::vector<float>& of(Channel channel) const {
    return values.at(static_cast<std::size_t>(channel));
  }
  [[nodiscard]] std::size_t size() const { return step.size(); }
  // A step that is there already, or that later ones follow, begins a repetition: the run resumed.
  // The steps from it on are dropped, so the run stays one curve.
  void add(const StepLine& line);
  // Index of the last step at or before `wanted`; size() if there is none.
  [[nodiscard]] std::size_t index_of(std::int64_t wanted) const;

 private:
  void drop_from(std::int64_t first);
};

}  // namespace sluice
