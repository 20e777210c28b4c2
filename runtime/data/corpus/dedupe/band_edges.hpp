// Pairs of near documents out of the rows of one band.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/corpus/dedupe/minhash.hpp"
#include "runtime/data/corpus/dedupe/row_sort.hpp"

namespace sluice {

// The signatures of the units on disk, by document number. Not thread-safe.
class SignatureFiles {
 public:
  // `first[u]` is the number of unit u's first document; the last entry ends the last unit.
  SignatureFiles(std::string folder, std::string output, std::vector<std::uint64_t> first,
                 std::size_t values);
  // Throws IoError if the file is damaged.
  [[nodiscard]] std::vector<std::uint32_t> read(std::uint64_t document);

 private:
  std::string folder_, output_;
  std::vector<std::uint64_t> first_;
  std::size_t values_;
  std::size_t unit_;  // of the open file
  Descriptor file_;
};

// Rows (hash, hash, document) in order. Calls edge(x, y) for documents of one hash: all with the
// first one, or, with signatures, each with the first earlier document that reaches the threshold.
// A document is compared with at most 64 earlier ones.
void band_edges(RowSorter& rows, SignatureFiles* signatures, double threshold,
                const std::function<void(std::uint64_t x, std::uint64_t y)>& edge);

}  // namespace sluice
