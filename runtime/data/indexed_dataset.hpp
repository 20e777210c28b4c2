// Megatron's .bin/.idx pair: tokens, and the sequences and documents that they form. Read-only,
// memory-mapped, thread-safe. Little-endian .idx, version 1:
//   "MMIDIDX\0\0" | u64 version | u8 type | u64 sequences S | u64 positions D |
//   i32 length[S] | i64 byte offset[S] | i64 document[D] (first sequence of each, then S) | i8
//   mode[S]?
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/posix/map.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

// The head of an .idx file.
struct IndexHeader {
  TokenType type = TokenType::kUInt16;
  std::int64_t sequences = 0;
  std::int64_t positions = 0;                                     // documents + 1
  std::int64_t lengths_at = 0, offsets_at = 0, documents_at = 0;  // bytes of the columns
};

// Checks the head against the file's size. Throws IoError with the mistake.
[[nodiscard]] IndexHeader read_index_header(const MappedFile& index);
// `prefix` without its ending .bin or .idx.
[[nodiscard]] std::string without_ending(std::string prefix);

class IndexedDataset : public DocumentSource {
 public:
  // `prefix` with or without .bin / .idx. Checks each value of the index against both files; throws
  // IoError with the file and the mistake.
  explicit IndexedDataset(const std::string& prefix);

  [[nodiscard]] std::int64_t size() const override { return stretches_.back(); }
  void read(std::int64_t first, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::span<const std::int64_t> document_starts() const override {
    return documents_;
  }
  [[nodiscard]] const std::string& path() const { return bin_.path(); }

 private:
  void read_sequences(const MappedFile& index, const IndexHeader& header);

  MappedFile bin_;
  TokenType type_ = TokenType::kUInt16;
  // Consecutive sequences of .bin form one stretch; usually all do. Stretch i begins at token
  // stretches_[i] of this source and at byte offsets_[i] of .bin.
  std::vector<std::int64_t> stretches_, offsets_;
  std::vector<std::int64_t> documents_;
};

}  // namespace sluice
