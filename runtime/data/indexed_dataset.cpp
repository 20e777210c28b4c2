#include "runtime/data/indexed_dataset.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

[[noreturn]] void damaged(const MappedFile& file, const std::string& what) {
  throw IoError(file.path() + " is not a usable Megatron index: " + what, file.path());
}

// A value at a byte offset that need not be aligned.
template <typename T>
T load(const MappedFile& file, std::int64_t offset) {
  T value;
  std::memcpy(&value, file.bytes().data() + offset, sizeof value);
  return value;
}

TokenType type_of_code(const MappedFile& index, std::uint8_t code) {
  switch (code) {
    case 1:
      return TokenType::kUInt8;
    case 2:
      return TokenType::kInt8;
    case 3:
      return TokenType::kInt16;
    case 4:
      return TokenType::kInt32;
    case 5:
      return TokenType::kInt64;
    case 8:
      return TokenType::kUInt16;
    default:
      break;
  }
  damaged(index, code == 6 || code == 7
                     ? "its tokens are floating-point numbers (type " + std::to_string(code) + ")"
                     : "unknown token type " + std::to_string(code));
}

}  // namespace

std::string without_ending(std::string prefix) {
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
  return prefix;
}

IndexHeader read_index_header(const MappedFile& index) {
  const auto size = static_cast<std::int64_t>(index.bytes().size());
  if (size < kHeaderBytes) damaged(index, "it has " + std::to_string(size) + " bytes");
  if (std::memcmp(index.bytes().data(), kMagic.data(), kMagic.size()) != 0) {
    damaged(index, "it does not begin with MMIDIDX");
  }
  const auto version = load<std::uint64_t>(index, 9);
  if (version != 1) damaged(index, "version " + std::to_string(version) + ", expected 1");
  IndexHeader header;
  header.type = type_of_code(index, load<std::uint8_t>(index, 17));
  const auto sequences = load<std::uint64_t>(index, 18);
  const auto positions = load<std::uint64_t>(index, 26);
  const auto most = static_cast<std::uint64_t>(size);  // keeps the sums below from overflowing
  if (sequences == 0 || positions == 0) damaged(index, "it holds no sequence");
  if (sequences > most || positions > most) damaged(index, "it is cut short");
  const std::uint64_t expected =
      static_cast<std::uint64_t>(kHeaderBytes) + 12 * sequences + 8 * positions;
  if (most != expected && most != expected + sequences) {
    damaged(index, "it has " + std::to_string(size) + " bytes where " + std::to_string(sequences) +
                       " sequences and " + std::to_string(positions) + " document positions need " +
                       std::to_string(expected));
  }
  header.sequences = static_cast<std::int64_t>(sequences);
  header.positions = static_cast<std::int64_t>(positions);
  header.lengths_at = kHeaderBytes;
  header.offsets_at = header.lengths_at + 4 * header.sequences;
  header.documents_at = header.offsets_at + 8 * header.sequences;
  return header;
}

IndexedDataset::IndexedDataset(const std::string& prefix) : bin_(without_ending(prefix) + ".bin") {
  const MappedFile index(without_ending(prefix) + ".idx");
  const IndexHeader header = read_index_header(index);
  type_ = header.type;
  read_sequences(index, header);
}

void IndexedDataset::read_sequences(const MappedFile& index, const IndexHeader& header) {
  const auto [type, sequences, positions, lengths_at, offsets_at, documents_at] = header;
  const auto bin_bytes = static_cast<std::int64_t>(bin_.bytes().size());
  const std::int64_t token_bytes = size_of(type);
  std::int64_t tokens = 0, stretch_end = -1, furthest = 0, position = 0;
  // A document that begins before sequence s begins at the tokens counted so far.
  const auto add_documents_at = [&](std::int64_t sequence) {
    for (; position < positions; ++position) {
      const auto start = load<std::int64_t>(index, documents_at + 8 * position);
      if (start > sequence) return;
      if (start < sequence)
        damaged(index, "document " + std::to_string(position) + " begins before its predecessor");
      documents_.push_back(tokens);
    }
  };
  for (std::int64_t s = 0; s < sequences; ++s) {
    add_documents_at(s);
    const std::int64_t length = load<std::int32_t>(index, lengths_at + 4 * s);
    const auto offset = load<std::int64_t>(index, offsets_at + 8 * s);
    const std::string name = "sequence " + std::to_string(s);
    if (length < 0 || offset < 0) damaged(index, name + " has a negative length or offset");
    if (offset > bin_bytes || length > (bin_bytes - offset) / token_bytes) {
      damaged(index, name + " ends at byte " + std::to_string(offset + length * token_bytes) +
                         " but " + bin_.path() + " has " + std::to_string(bin_bytes));
    }
    if (offset != stretch_end) {
      stretches_.push_back(tokens);
      offsets_.push_back(offset);
    }
    tokens += length;
    stretch_end = offset + length * token_bytes;
    furthest = std::max(furthest, stretch_end);
  }
  add_documents_at(sequences);
  stretches_.push_back(tokens);
  if (furthest != bin_bytes) {
    damaged(index, "its sequences end at byte " + std::to_string(furthest) + " but " + bin_.path() +
                       " has " + std::to_string(bin_bytes));
  }
  if (position != positions || documents_.front() != 0 || documents_.back() != tokens ||
      load<std::int64_t>(index, documents_at) != 0 ||
      load<std::int64_t>(index, documents_at + 8 * (positions - 1)) != sequences) {
    damaged(index,
            "its documents do not go from sequence 0 to sequence " + std::to_string(sequences));
  }
  if (tokens == 0) damaged(index, "it holds no token");
}

void IndexedDataset::read(std::int64_t first, std::span<std::int64_t> out) const {
  check(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size(),
        "IndexedDataset::read outside the data");
  if (out.empty()) return;
  auto stretch = static_cast<std::size_t>(
      std::upper_bound(stretches_.begin(), stretches_.end(), first) - stretches_.begin() - 1);
  for (; !out.empty(); ++stretch) {
    const auto count =
        std::min(out.size(), static_cast<std::size_t>(stretches_[stretch + 1] - first));
    const std::int64_t at = offsets_[stretch] + (first - stretches_[stretch]) * size_of(type_);
    widen_tokens(type_, bin_.bytes().data() + at, out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

}  // namespace sluice
