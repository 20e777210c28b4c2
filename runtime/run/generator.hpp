// Text generation: the engine runs the prompt in one pass, then one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/generate/token_choice.hpp"

namespace sluice {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 256;
  bool stop_at_end_of_text = true;
  std::set<std::int32_t> end_tokens{};  // end a text, as does end_of_text()
};

enum class StopReason { kEndOfText, kMaxTokens, kRequest };
[[nodiscard]] std::string_view name_of(StopReason reason);  // "end_of_text"

struct Generated {
  std::vector<std::int32_t> tokens;  // without the prompt and the end of text
  StopReason stop = StopReason::kMaxTokens;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of all tokens but the first
};

// Called on every rank with each new token. False asks to stop after the token; rank 0 decides for
// all ranks.
using TokenObserver = std::function<bool(std::int32_t token)>;

// Collective: all ranks pass equal arguments and get rank 0's choices. REQUIRES: prompt.size() +
// max_tokens <= the engine's generate_positions, a prompt of at least one token, ids of the model.
// Ids outside the tokenizer are never chosen.
[[nodiscard]] Generated generate(Engine& engine, Communicator& comm, const Tokenizer& tokenizer,
                                 const std::vector<std::int32_t>& prompt,
                                 const GenerateOptions& options, const TokenObserver& observer);

// The sample at the end of a training run: the model continues the first tokens of the first
// validation sample at temperature 0.8.
struct Sampled {
  std::string prompt;
  std::string continuation;
};
// Positions of such a sequence: EngineOptions::generate_positions of a run that asks for `tokens`.
[[nodiscard]] std::int64_t sample_positions(std::int64_t seq, std::int64_t tokens);
// REQUIRES: a tokenizer and validation samples.
[[nodiscard]] Sampled sample_text(Engine& engine, Communicator& comm, const TrainingData& data,
                                  std::int64_t tokens, std::uint64_t seed,
                                  const std::function<void()>& after_token);

}  // namespace sluice
