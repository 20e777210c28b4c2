#include "runtime/generate/eval_windows.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {
namespace {

// first: of the tokens, in the data called `name`.
void check_vocab(const std::string& name, std::span<const std::int64_t> tokens, std::int64_t first,
                 std::int64_t vocab) {
  const auto wrong = std::find_if(tokens.begin(), tokens.end(),
                                  [&](std::int64_t token) { return token < 0 || token >= vocab; });
  if (wrong == tokens.end()) return;
  throw IoError(name + ": token " + std::to_string(first + (wrong - tokens.begin())) + " is " +
                    std::to_string(*wrong) + ", outside the model's vocabulary of " +
                    std::to_string(vocab) +
                    "; its tokens were made by another tokenizer than the model's: evaluate "
                    "on others, or set data.tokenizer to the model's",
                name);
}

}  // namespace

std::vector<EvalWindow> cut_windows(std::int64_t tokens, std::int64_t seq, std::int64_t stride) {
  check(stride >= 1 && stride <= seq, "windows begin every 1 to seq positions");
  const std::int64_t predictions = tokens - 1;
  std::vector<EvalWindow> windows;
  std::int64_t counted = 0;
  for (std::int64_t first = 0; counted < predictions; first += stride) {
    const std::int64_t until = std::min(first + seq, predictions);
    windows.push_back({.first = first, .context = counted - first, .length = until - first});
    counted = until;
  }
  return windows;
}

void append_window(const std::string& name, const TokenSource& source, const EvalWindow& window,
                   std::int64_t seq, std::int64_t vocab, std::vector<std::int64_t>& tokens,
                   std::vector<std::int64_t>& targets, std::vector<std::int32_t>* ends) {
  std::vector<std::int64_t> read(static_cast<std::size_t>(window.length) + 1);
  source.read(window.first, read);
  check_vocab(name, read, window.first, vocab);
  const auto padding = static_cast<std::size_t>(seq - window.length);
  tokens.insert(tokens.end(), read.begin(), read.end() - 1);
  tokens.insert(tokens.end(), padding, 0);
  targets.insert(targets.end(), static_cast<std::size_t>(window.context), kIgnoreTarget);
  targets.insert(targets.end(), read.begin() + 1 + window.context, read.end());
  targets.insert(targets.end(), padding, kIgnoreTarget);
  if (ends == nullptr) return;
  const auto row = static_cast<std::ptrdiff_t>(seq);
  tell_documents(source, window.first, window.length,
                 {{tokens.end() - row, tokens.end()}, {targets.end() - row, targets.end()}, ends});
}

std::vector<std::int32_t> append_packed_row(const std::string& name, const SampleSource& rows,
                                            std::int64_t row, std::int64_t seq, std::int64_t vocab,
                                            std::vector<std::int64_t>& tokens,
                                            std::vector<std::int64_t>& targets) {
  const std::size_t begin = tokens.size();
  tokens.resize(begin + static_cast<std::size_t>(seq));
  targets.resize(tokens.size());
  std::vector<std::int32_t> ends;
  const std::span<std::int64_t> added = std::span(tokens).subspan(begin);
  const std::int64_t first = rows.read(row, {added, std::span(targets).subspan(begin), &ends});
  check_vocab(name, added, first, vocab);
  return ends;
}

}  // namespace sluice
