// Merge, split and shuffle of .bin/.idx pairs by document. Outputs depend on inputs and options
// alone; memory does not grow with the files. An output that exists is refused (ConfigError); a
// damaged input is an IoError. Sequences and empty documents stay as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice {

// Called now and then with the documents done and in all.
using DocumentProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Lays the inputs end to end, as Megatron's merge_datasets. Throws ConfigError if their types
// differ. Returns the number of documents.
std::int64_t merge_indexed(const std::vector<std::string>& inputs, const std::string& output,
                           const DocumentProgress& progress = {});

struct IndexedSplit {
  std::string input;
  std::string output;                 // of <output>_train, <output>_valid, <output>_test
  std::vector<double> shares{95, 5};  // of documents; one to three
  std::uint64_t seed = 1234;          // which documents; their order stays
};
// Returns the documents of each part. A part without documents is not written.
std::vector<std::int64_t> split_indexed(const IndexedSplit& split,
                                        const DocumentProgress& progress = {});

struct IndexedShuffle {
  std::string input, output;
  std::uint64_t seed = 1234;
  // Of documents that are held at once, about. An input above 256 times this size needs more: at
  // most 256 temporary files are open.
  std::int64_t memory_bytes = 1LL << 30U;
};
// Documents in an order that follows from the seed and their number. Documents that do not fit the
// memory go through temporary files beside the output: twice the input's bytes on disk. Returns the
// number of documents.
std::int64_t shuffle_indexed(const IndexedShuffle& shuffle, const DocumentProgress& progress = {});

}  // namespace sluice
