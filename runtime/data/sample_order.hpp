// The order of samples: one permutation for each epoch. The permutation is computed, not stored: a
// function of (seed, position), so any rank can ask for any part. Pure; thread-safe.
//
// A keyed Feistel network permutes the smallest square power of two that holds `samples`. A result
// outside of [0, samples) goes through the network again until it falls inside (cycle walking), so
// the map stays a bijection.
#pragma once

#include <cstdint>

namespace sluice {

class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed);  // REQUIRES: samples >= 0
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  // The sample at `position` of `epoch`. Positions [0, samples) give each sample once.
  [[nodiscard]] std::int64_t at(std::int64_t epoch, std::int64_t position) const;
  // The sample of draw `draw` (from 0) over consecutive epochs. REQUIRES: samples > 0.
  [[nodiscard]] std::int64_t draw(std::int64_t draw) const;

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  unsigned half_bits_ = 1;  // 4^half_bits >= samples
};

}  // namespace sluice
