// "500" (steps) or "30min" (time), as in checkpoint.every; "500" or "5%" (of train.steps), as in
// the keys of schedule:; "3e-5" or "10%" (of optimizer.lr), as in schedule.min_lr. Pure functions;
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/checkpoint/checkpoint_options.hpp"
#include "runtime/run/train_options.hpp"

namespace sluice {

// Steps as a count ("500", "1k", "1e3"), time with its unit (s, m or min, h). nullopt for other
// text and for values out of range.
[[nodiscard]] std::optional<SaveInterval> read_interval(std::string_view text);

// Text that reads back to the same interval: "500", "1800s".
[[nodiscard]] std::string write_interval(const SaveInterval& interval);

// Steps as a count, or a share above 0 % up to 100 %. nullopt for other text.
[[nodiscard]] std::optional<StepCount> read_steps(std::string_view text);

// Text that reads back to the same number or share: "500", "6.25%".
[[nodiscard]] std::string write_steps(const StepCount& count);

// A learning rate, or a share from 0 % to 100 %. nullopt for other text.
[[nodiscard]] std::optional<RateBound> read_rate(std::string_view text);

// Text that reads back to the same number or share: "3e-05", "0.01%".
[[nodiscard]] std::string write_rate(const RateBound& rate);

}  // namespace sluice
