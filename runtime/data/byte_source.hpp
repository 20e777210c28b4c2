// The bytes of one file of text in order. A gzip file (known by its first bytes, whatever its name)
// is unpacked on the way, in constant memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/data/text_files.hpp"

namespace sluice {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out`; fewer bytes mean that the text has ended. Throws IoError with the path and the
  // offset where the file cannot be read, is damaged, or is shorter than TextFile::size_bytes.
  virtual std::size_t read(std::span<char> out) = 0;
  // No more than this is left to read; of a packed file the largest number.
  [[nodiscard]] virtual std::size_t most_left() const = 0;
  // True when read() has given the last byte.
  [[nodiscard]] virtual bool at_end() const = 0;
  // Bytes of the file, packed where it is packed, that read() has used so far.
  [[nodiscard]] virtual std::int64_t used_bytes() const = 0;
};

[[nodiscard]] std::unique_ptr<ByteSource> open_bytes(const TextFile& file);

// Names the kind of a file that is no text by its beginning, with advice: "a Parquet file; ...".
// Empty: it may be text. A zero byte makes any file binary.
[[nodiscard]] std::string binary_kind(std::string_view beginning);

}  // namespace sluice
