// The next token from logits. Pure; thread-safe.
//
// The token is a function of the logits, the seed and the position alone (counter-based Philox), so
// that it is the same on every layout and whatever was generated before with another prompt.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the likeliest token
  std::int64_t top_k = 0;  // of the likeliest ones only; 0: all
  double top_p = 1;        // of the fewest ones that together have at least this probability
  std::uint64_t seed = 1234;
};

// One of logits' indices, for the token at `position` of its sequence. Top-k comes before top-p.
// Tokens of equal logits are taken in order of their number. Throws ConfigError where the options
// have no meaning, TrainingError where a logit is NaN or infinite.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits,
                                        const SamplingOptions& options, std::int64_t position);

// Throws ConfigError naming the option.
void check_sampling(const SamplingOptions& options);

}  // namespace sluice
