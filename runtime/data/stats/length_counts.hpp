// How many documents have which length. Memory is constant: lengths below 4096 are counted exactly,
// larger ones in steps of less than 1/2048 of the length. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sluice {

class LengthCounts {
 public:
  // The lengths from 2^(i-1) to 2^i - 1; i = 0: length 0.
  struct Octave {
    std::int64_t documents = 0, tokens = 0;
  };

  void add(std::int64_t length);

  [[nodiscard]] std::int64_t documents() const { return documents_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t least() const { return least_; }
  [[nodiscard]] std::int64_t most() const { return most_; }
  // The least length that a share `q` of the documents does not exceed; rounded down where lengths
  // are counted in steps. REQUIRES: documents() > 0, 0 <= q <= 1.
  [[nodiscard]] std::int64_t quantile(double q) const;
  // Up to the octave of the longest document.
  [[nodiscard]] std::vector<Octave> octaves() const;

 private:
  std::vector<std::int64_t> counts_;  // by step
  std::array<Octave, 64> octaves_{};
  std::int64_t documents_ = 0, tokens_ = 0, least_ = 0, most_ = 0;
};

}  // namespace sluice
