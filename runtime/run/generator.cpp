#include "runtime/run/generator.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>

#include "base/error.hpp"
#include "runtime/generate/text_stream.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kSamplePrompt = 48;
constexpr double kSampleTemperature = 0.8;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::int64_t choose(const at::Tensor& logits_1V, std::int64_t vocab, const SamplingOptions& options,
                    std::int64_t position) {
  const at::Tensor host = logits_1V.to(c10::DeviceType::CPU).contiguous();
  const auto known = static_cast<std::size_t>(std::min(vocab, host.numel()));
  return choose_token({host_data<float>(host), known}, options, position);
}

std::int64_t sample_prompt(std::int64_t seq) {
  return std::clamp<std::int64_t>(seq / 2, 1, kSamplePrompt);
}

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "end_of_text";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kRequest:
      return "request";
  }
  return "?";
}

Generated generate(Engine& engine, Communicator& comm, const Tokenizer& tokenizer,
                   const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                   const TokenObserver& observer) {
  check(!prompt.empty(), "a prompt has a token or more");
  Generated made;
  std::vector<std::int64_t> input(prompt.begin(), prompt.end());
  std::int64_t first = 0;
  bool asked = false;
  Clock::time_point begin = Clock::now();
  while (static_cast<std::int64_t>(made.tokens.size()) < options.max_tokens) {
    const at::Tensor logits = engine.decode(first, input);
    first += static_cast<std::int64_t>(input.size());
    // Ranks on unlike machines may round differently: one of them decides, also to stop.
    const std::array<double, 2> mine{
        static_cast<double>(choose(logits, tokenizer.vocab_size(), options.sampling, first)),
        asked ? 1.0 : 0.0};
    const std::vector<double> all = comm.all_gather_values(mine);
    const auto token = static_cast<std::int32_t>(all[0]);
    if (made.prefill_seconds == 0) {
      made.prefill_seconds = seconds_since(begin);
      begin = Clock::now();
    }
    if (all[1] > 0) {
      made.stop = StopReason::kRequest;
      break;
    }
    if (options.stop_at_end_of_text &&
        (token == tokenizer.end_of_text() || options.end_tokens.contains(token))) {
      made.stop = StopReason::kEndOfText;
      break;
    }
    made.tokens.push_back(token);
    asked = !observer(token);
    input = {token};
  }
  made.decode_seconds = seconds_since(begin);
  return made;
}

std::int64_t sample_positions(std::int64_t seq, std::int64_t tokens) {
  return tokens == 0 ? 0 : std::min(seq, sample_prompt(seq) + tokens);
}

namespace {

// The begin of one of the first validation rows, the one with most letters: how a table of numbers
// goes on says little about a model.
std::vector<std::int32_t> prompt_of_words(const TrainingData& data, std::int64_t tokens) {
  constexpr std::int64_t kRows = 8;
  SampleRows rows;
  data.valid_rows(0, kRows, 0, kRows, rows);
  const auto seq = std::ssize(rows.tokens) / kRows;
  std::vector<std::int32_t> best;
  std::ptrdiff_t most = -1;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto begin = rows.tokens.begin() + row * seq;
    const std::vector<std::int32_t> prompt(begin, begin + tokens);
    const std::string text = data.tokenizer()->decode(prompt);
    const auto letters = std::count_if(text.begin(), text.end(), [](unsigned char c) {
      constexpr unsigned char kFirstOfMany = 0x80;  // of a character of several bytes
      return std::isalpha(c) != 0 || c >= kFirstOfMany;
    });
    if (letters <= most) continue;
    most = letters;
    best = prompt;
  }
  return best;
}

}  // namespace

Sampled sample_text(Engine& engine, Communicator& comm, const TrainingData& data,
                    std::int64_t tokens, std::uint64_t seed,
                    const std::function<void()>& after_token) {
  const std::int64_t seq = engine.spec().options.seq;
  const std::vector<std::int32_t> prompt = prompt_of_words(data, sample_prompt(seq));
  const std::int64_t room = sample_positions(seq, tokens) - sample_prompt(seq);
  const GenerateOptions options{.sampling = {.temperature = kSampleTemperature, .seed = seed},
                                .max_tokens = room};
  const Tokenizer& tokenizer = *data.tokenizer();
  const Generated made =
      generate(engine, comm, tokenizer, prompt, options, [&](std::int32_t /*token*/) {
        after_token();
        return true;
      });
  const auto text = [&](const std::vector<std::int32_t>& ids) {
    TextStream stream;
    return stream.add(tokenizer.decode(ids)) + stream.finish();
  };
  return {text(prompt), text(made.tokens)};
}

}  // namespace sluice
