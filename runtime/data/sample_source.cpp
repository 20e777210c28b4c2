#include "runtime/data/sample_source.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {

std::int64_t samples_in(std::int64_t tokens, std::int64_t seq) {
  return tokens > seq ? (tokens - 1) / seq : 0;
}

void tell_documents(const TokenSource& source, std::int64_t first, std::int64_t length,
                    const SampleRow& row) {
  const auto seq = static_cast<std::int64_t>(row.targets.size());
  std::vector<std::int64_t> starts;
  source.add_starts(first, first + length + 1, starts);
  row.ends->assign(1, 0);
  for (const std::int64_t start : starts) {
    const std::int64_t end = start - first;
    row.targets[static_cast<std::size_t>(end - 1)] = kIgnoreTarget;
    if (end < seq) row.ends->push_back(static_cast<std::int32_t>(end));
  }
  row.ends->push_back(static_cast<std::int32_t>(seq));
}

StreamSamples::StreamSamples(std::shared_ptr<const TokenSource> source, std::int64_t seq)
    : source_(std::move(source)), seq_(seq) {}

std::int64_t StreamSamples::samples() const { return samples_in(source_->size(), seq_); }

std::int64_t StreamSamples::read(std::int64_t sample, const SampleRow& row) const {
  const std::int64_t first = sample * seq_;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(seq_) + 1);
  source_->read(first, tokens);
  std::copy(tokens.begin(), tokens.end() - 1, row.tokens.begin());
  std::copy(tokens.begin() + 1, tokens.end(), row.targets.begin());
  if (row.ends != nullptr) tell_documents(*source_, first, seq_, row);
  return first;
}

std::int64_t StreamSamples::learned(std::int64_t sample) const {
  std::vector<std::int64_t> starts;
  source_->add_starts(sample * seq_, (sample + 1) * seq_ + 1, starts);
  return seq_ - static_cast<std::int64_t>(starts.size());
}

}  // namespace sluice
