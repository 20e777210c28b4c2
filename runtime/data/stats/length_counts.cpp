#include "runtime/data/stats/length_counts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"

namespace sluice {
namespace {

// Lengths of at most 12 bits are steps of their own. Of longer ones the upper 12 bits count, so an
// octave has 2048 steps.
constexpr int kBits = 12;
constexpr std::uint64_t kExact = 1U << kBits, kStepsOfOctave = kExact / 2;

int width_of(std::int64_t length) { return std::bit_width(static_cast<std::uint64_t>(length)); }

std::size_t step_of(std::int64_t length) {
  const int shift = std::max(width_of(length) - kBits, 0);
  const std::uint64_t upper = static_cast<std::uint64_t>(length) >> static_cast<unsigned>(shift);
  return static_cast<std::size_t>(upper + kStepsOfOctave * static_cast<std::uint64_t>(shift));
}

// The least length of a step.
std::int64_t length_of(std::size_t step) {
  if (step < kExact) return static_cast<std::int64_t>(step);
  const std::size_t shift = step / kStepsOfOctave - 1;
  return static_cast<std::int64_t>((step - shift * kStepsOfOctave) << shift);
}

}  // namespace

void LengthCounts::add(std::int64_t length) {
  check(length >= 0, "LengthCounts::add of a negative length");
  const std::size_t step = step_of(length);
  if (step >= counts_.size()) counts_.resize(step + 1);
  ++counts_[step];
  Octave& octave = octaves_.at(static_cast<std::size_t>(width_of(length)));
  ++octave.documents;
  octave.tokens += length;
  least_ = documents_ == 0 ? length : std::min(least_, length);
  most_ = std::max(most_, length);
  ++documents_;
  tokens_ += length;
}

std::int64_t LengthCounts::quantile(double q) const {
  check(documents_ > 0 && q >= 0 && q <= 1, "LengthCounts::quantile without documents");
  const auto wanted = std::clamp<std::int64_t>(
      std::llround(std::ceil(q * static_cast<double>(documents_))), 1, documents_);
  if (wanted == documents_) return most_;
  std::int64_t seen = 0;
  for (std::size_t step = 0;; ++step) {
    seen += counts_.at(step);
    if (seen >= wanted) return std::max(length_of(step), least_);
  }
}

std::vector<LengthCounts::Octave> LengthCounts::octaves() const {
  return {octaves_.begin(), octaves_.begin() + (documents_ == 0 ? 0 : width_of(most_) + 1)};
}

}  // namespace sluice
