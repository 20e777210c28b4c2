// MinHash signatures of texts (Broder 1997) and the bands of locality-sensitive hashing. Two texts
// whose shingles have the Jaccard similarity s agree in each value of their signatures with
// probability s, and share at least one band with probability 1 - (1 - s^rows)^bands. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/hash.hpp"

namespace sluice {

enum class ShingleUnit { kCharacters, kWords };

struct MinHashOptions {
  ShingleUnit unit = ShingleUnit::kWords;
  int shingle = 5;  // characters or words
  // Words in lower case, digits as 0, without symbols; else the characters as they are.
  bool normalise = true;
  int bands = 14;
  int rows = 8;  // values of a band
  std::uint64_t seed = 1;
  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(bands) * static_cast<std::size_t>(rows);
  }
};

class MinHasher {
 public:
  // Throws ConfigError on a size below 1 or more than 1024 values.
  explicit MinHasher(const MinHashOptions& options);
  // Hashes of the shingles. A text shorter than a shingle is one shingle; a text without characters
  // or words has none.
  [[nodiscard]] std::vector<std::uint64_t> shingles(std::string_view text) const;
  // options.values() values. REQUIRES: at least one shingle.
  [[nodiscard]] std::vector<std::uint32_t> signature(std::span<const std::uint64_t> shingles) const;
  // Hash of the values of one band.
  [[nodiscard]] Hash128 band(std::span<const std::uint32_t> signature, int band) const;

 private:
  MinHashOptions options_;
  std::vector<std::uint64_t> factors_, terms_;  // of a value: (factor * shingle + term) >> 32
};

// Share of equal values: the estimate of the Jaccard similarity. Standard deviation:
// sqrt(s (1 - s) / values).
[[nodiscard]] double estimated_similarity(std::span<const std::uint32_t> a,
                                          std::span<const std::uint32_t> b);

}  // namespace sluice
