// The order of samples: a permutation for each epoch, computed, not stored, so that it is a
// function of (seed, position) alone and any rank can ask for any part of it. Pure; thread-safe.
//
// A keyed Feistel network permutes the smallest square power of two that holds `samples`; what
// falls outside is sent through again until it falls inside (cycle walking), which keeps it a
// bijection.
#pragma once

#include <cstdint>

namespace sluice {

class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed);  // REQUIRES: samples >= 0
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  // The sample at `position` of `epoch`: over position in [0, samples) each sample once.
  [[nodiscard]] std::int64_t at(std::int64_t epoch, std::int64_t position) const;
  // The sample of draw `draw` (from 0) where epoch follows epoch. REQUIRES: samples > 0.
  [[nodiscard]] std::int64_t draw(std::int64_t draw) const;

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  unsigned half_bits_ = 1;  // 4^half_bits >= samples
};

}  // namespace sluice
