// A .bin/.idx pair by document, for tools that copy: tokens stay in their stored type, sequences
// stay apart, and nothing is held in memory but the maps. Each value of the index is checked when
// it is read. Thread-safe after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/posix/map.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/prepare/indexed_writer.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

class IndexedFile {
 public:
  // `prefix` with or without .bin / .idx. Throws IoError with the file and the mistake.
  explicit IndexedFile(const std::string& prefix);

  [[nodiscard]] TokenType type() const { return header_.type; }
  [[nodiscard]] std::int64_t documents() const { return header_.positions - 1; }
  [[nodiscard]] std::int64_t bin_bytes() const {
    return static_cast<std::int64_t>(bin_.bytes().size());
  }
  [[nodiscard]] const std::string& path() const { return bin_.path(); }

  struct Document {
    std::vector<std::int32_t> lengths;               // of its sequences, in tokens
    std::vector<std::span<const std::byte>> tokens;  // of its sequences, in the file's map
  };
  // REQUIRES: 0 <= index < documents().
  void read(std::int64_t index, Document& document) const;
  // Takes what is read of the files out of this process's memory. Documents stay valid.
  void let_go_pages() const;

 private:
  [[nodiscard]] std::int64_t first_sequence(std::int64_t document) const;
  [[noreturn]] void damaged(const std::string& what) const;

  MappedFile bin_, idx_;
  IndexHeader header_;  // of idx_
};

// Appends a document of a file of the same type.
void append_document(const IndexedFile::Document& document, IndexedWriter& out);

}  // namespace sluice
