// A few tokens from a trained model, to look at.
#pragma once

#include <functional>
#include <string>

#include "runtime/engine/engine.hpp"

namespace sluice {

struct Sampled {
  std::string prompt;
  std::string continuation;
};

// Goes on from the first tokens of the first validation sample, drawing at temperature 0.8 by
// (seed, position) alone. Collective: every rank draws the same. `after_token` is called after
// each. REQUIRES: a tokenizer and validation samples.
[[nodiscard]] Sampled sample_text(Engine& engine, const TrainingData& data, std::int64_t tokens,
                                  std::uint64_t seed, const std::function<void()>& after_token);

}  // namespace sluice
