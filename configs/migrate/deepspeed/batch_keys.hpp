// The three keys whose product is the batch of a step.
#pragma once

#include <string_view>

namespace sluice::migrate {

inline constexpr std::string_view kGlobal = "train_batch_size";
inline constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
inline constexpr std::string_view kAccumulation = "gradient_accumulation_steps";

}  // namespace sluice::migrate
