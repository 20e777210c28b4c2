#include "runtime/engine/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/philox.hpp"
#include "runtime/data/tokenizer.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPromptTokens = 48;
constexpr double kTemperature = 0.8;

// Inverse of the cumulated softmax at a uniform number; the same on every rank.
std::int64_t draw(const at::Tensor& logits_1V, std::uint64_t seed, std::uint64_t position) {
  const at::Tensor host = logits_1V.to(c10::DeviceType::CPU).contiguous();
  const float* logits = host_data<float>(host);
  const std::int64_t vocab = host.numel();
  const double largest = *std::max_element(logits, logits + vocab);
  std::vector<double> cumulated(static_cast<std::size_t>(vocab));
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    sum += std::exp((logits[i] - largest) / kTemperature);
    cumulated[static_cast<std::size_t>(i)] = sum;
  }
  const double uniform = philox_block(seed, hash_name("sample"), position)[0] / 4294967296.0;
  const auto at = std::upper_bound(cumulated.begin(), cumulated.end(), uniform * sum);
  return std::min<std::int64_t>(at - cumulated.begin(), vocab - 1);
}

}  // namespace

Sampled sample_text(Engine& engine, const TrainingData& data, std::int64_t tokens,
                    std::uint64_t seed, const std::function<void()>& after_token) {
  SampleRows rows;
  data.valid_rows(0, 1, 0, 1, rows);
  const std::int64_t seq = engine.spec().options.seq;
  const auto prompt = std::min<std::int64_t>(kPromptTokens, seq / 2);
  std::vector<std::int64_t> all(rows.tokens.begin(), rows.tokens.begin() + prompt);
  const Tokenizer& tokenizer = *data.tokenizer();
  std::vector<std::int32_t> made;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto context = std::min<std::int64_t>(seq, static_cast<std::int64_t>(all.size()));
    SampleRows input;
    input.tokens.assign(all.end() - context, all.end());
    const std::int64_t next =
        draw(engine.next_token_logits(input, 1), seed, static_cast<std::uint64_t>(i));
    if (next >= tokenizer.vocab_size() || next == tokenizer.end_of_text()) break;
    all.push_back(next);
    made.push_back(static_cast<std::int32_t>(next));
    after_token();
  }
  const std::vector<std::int32_t> given(all.begin(), all.begin() + prompt);
  return {tokenizer.decode(given), tokenizer.decode(made)};
}

}  // namespace sluice
