// Chooses the next token from logits. Pure; thread-safe.
//
// The token is a function of the logits, the seed and the position alone (counter-based Philox). It
// depends neither on the layout nor on earlier draws.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  // draws from the top_k most likely tokens; 0: from all
  double top_p = 1;        // draws from the fewest tokens with at least this total probability
  std::uint64_t seed = 1234;
};

// Returns the index of the chosen logit, for the token at `position` of its sequence. Applies top_k
// before top_p. Tokens with equal logits are ordered by number. Throws ConfigError for invalid
// options, and TrainingError if a logit is NaN or infinite.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits,
                                        const SamplingOptions& options, std::int64_t position);

// Throws ConfigError, which names the option.
void check_sampling(const SamplingOptions& options);

}  // namespace sluice
