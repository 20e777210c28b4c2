#include <algorithm>
#include <array>

#include "runtime/data/hash.hpp"
#include "runtime/data/token_source.hpp"
#include "runtime/data/training_data.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kRuns = 256;  // spread evenly, the first and the last tokens among them
constexpr std::int64_t kRunTokens = 32;

void add_tokens(const TokenSource& source, Hasher& hasher) {
  const std::int64_t size = source.size();
  hasher.add(size);
  std::array<std::int64_t, kRunTokens> tokens{};
  const std::int64_t run = std::min(kRunTokens, size);
  const std::int64_t last = size - run;
  for (std::int64_t i = 0; i < kRuns && run > 0; ++i) {
    // last * i / (kRuns - 1), which could overflow.
    const std::int64_t first = last / (kRuns - 1) * i + last % (kRuns - 1) * i / (kRuns - 1);
    const std::span<std::int64_t> part(tokens.data(), static_cast<std::size_t>(run));
    source.read(first, part);
    for (const std::int64_t token : part) hasher.add(token);
  }
}

}  // namespace

std::string TrainingData::fingerprint() const {
  Hasher hasher;
  hasher.add("training data v1");
  hasher.add(vocab_size_);
  for (const MixPart& part : train_.parts()) {
    if (train_.parts().size() > 1) hasher.add(std::to_string(part.weight));
    add_tokens(*part.source, hasher);
  }
  if (valid_.parts().empty()) hasher.add(std::int64_t{0});  // as a source without tokens
  for (const MixPart& part : valid_.parts()) add_tokens(*part.source, hasher);
  return hasher.digest_hex();
}

}  // namespace sluice
