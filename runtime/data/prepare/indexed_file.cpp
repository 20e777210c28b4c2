#include "runtime/data/prepare/indexed_file.hpp"

#include <cstring>

#include "base/error.hpp"

namespace sluice {
namespace {

// A value at a byte offset that need not be aligned.
template <class T>
T value_at(const MappedFile& file, std::int64_t offset) {
  T value;
  std::memcpy(&value, file.bytes().data() + offset, sizeof value);
  return value;
}

}  // namespace

IndexedFile::IndexedFile(const std::string& prefix)
    : bin_(without_ending(prefix) + ".bin"),
      idx_(without_ending(prefix) + ".idx"),
      header_(read_index_header(idx_)) {
  if (first_sequence(0) != 0 || first_sequence(documents()) != header_.sequences) {
    damaged("its documents do not go from sequence 0 to sequence " +
            std::to_string(header_.sequences));
  }
}

std::int64_t IndexedFile::first_sequence(std::int64_t document) const {
  const auto first = value_at<std::int64_t>(idx_, header_.documents_at + 8 * document);
  if (first < 0 || first > header_.sequences) {
    damaged("document " + std::to_string(document) + " begins at sequence " +
            std::to_string(first) + " of " + std::to_string(header_.sequences));
  }
  return first;
}

void IndexedFile::damaged(const std::string& what) const {
  throw IoError(idx_.path() + " is not a usable Megatron index: " + what, idx_.path());
}

void IndexedFile::read(std::int64_t index, Document& document) const {
  check(index >= 0 && index < documents(), "IndexedFile::read outside the file");
  document.lengths.clear();
  document.tokens.clear();
  const std::int64_t first = first_sequence(index), end = first_sequence(index + 1);
  if (end < first) {
    damaged("document " + std::to_string(index + 1) + " begins before its predecessor");
  }
  for (std::int64_t s = first; s < end; ++s) {
    const auto length = value_at<std::int32_t>(idx_, header_.lengths_at + 4 * s);
    const auto offset = value_at<std::int64_t>(idx_, header_.offsets_at + 8 * s);
    const std::int64_t bytes = std::int64_t{length} * size_of(type());
    if (length < 0 || offset < 0 || offset > bin_bytes() || bytes > bin_bytes() - offset) {
      damaged("sequence " + std::to_string(s) + " of " + std::to_string(length) +
              " tokens at byte " + std::to_string(offset) + " lies outside " + bin_.path() +
              ", which has " + std::to_string(bin_bytes()) + " bytes");
    }
    document.lengths.push_back(length);
    document.tokens.push_back(
        bin_.bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes)));
  }
}

void IndexedFile::let_go_pages() const {
  let_go(bin_.bytes());
  let_go(idx_.bytes());
}

void append_document(const IndexedFile::Document& document, IndexedWriter& out) {
  for (const std::span<const std::byte> tokens : document.tokens) out.append(tokens);
  out.end_document(document.lengths);
}

}  // namespace sluice
