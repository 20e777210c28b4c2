#include "runtime/generate/eval_windows.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {

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
                   std::vector<std::int64_t>& targets) {
  std::vector<std::int64_t> read(static_cast<std::size_t>(window.length) + 1);
  source.read(window.first, read);
  const auto wrong = std::find_if(read.begin(), read.end(),
                                  [&](std::int64_t token) { return token < 0 || token >= vocab; });
  if (wrong != read.end()) {
    throw IoError(name + ": token " + std::to_string(window.first + (wrong - read.begin())) +
                      " is " + std::to_string(*wrong) + ", outside the model's vocabulary of " +
                      std::to_string(vocab) +
                      "; its tokens were made by another tokenizer than the model's: evaluate "
                      "on others, or set data.tokenizer to the model's",
                  name);
  }
  const auto padding = static_cast<std::size_t>(seq - window.length);
  tokens.insert(tokens.end(), read.begin(), read.end() - 1);
  tokens.insert(tokens.end(), padding, 0);
  targets.insert(targets.end(), static_cast<std::size_t>(window.context), kIgnoreTarget);
  targets.insert(targets.end(), read.begin() + 1 + window.context, read.end());
  targets.insert(targets.end(), padding, kIgnoreTarget);
}

}  // namespace sluice
