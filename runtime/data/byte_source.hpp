// The bytes of one text file in order. A gzip or zstd file is unpacked in constant memory; its
// first bytes identify it, whatever its name. A Parquet file (by name) gives its rows as JSON
// lines. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/text_files.hpp"

namespace sluice {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out`. A shorter result means that the text has ended. Throws IoError with path and
  // offset if the file cannot be read, is damaged, or is shorter than TextFile::size_bytes.
  virtual std::size_t read(std::span<char> out) = 0;
  // Upper bound of the bytes that read() can still return; for a packed file the largest number.
  [[nodiscard]] virtual std::size_t most_left() const = 0;
  // True after read() has returned the last byte.
  [[nodiscard]] virtual bool at_end() const = 0;
  // Bytes of the file (packed bytes of a packed file) that read() has consumed.
  [[nodiscard]] virtual std::int64_t used_bytes() const = 0;
};

enum class Packing { kNone, kGzip, kZstd, kParquet };
[[nodiscard]] Packing packing_of(const TextFile& file);

// `columns`: of a Parquet file, the columns to read, which must hold strings; none: all columns.
[[nodiscard]] std::unique_ptr<ByteSource> open_bytes(const TextFile& file,
                                                     const std::vector<std::string>& columns = {});
// The bytes of the file as they are, starting at the offset `from`.
[[nodiscard]] std::unique_ptr<ByteSource> open_plain_bytes(const TextFile& file, std::int64_t from);

// Identifies a file that is no text by its first bytes and returns its kind with advice: "a Parquet
// file; ...". An empty result: the file may be text.
[[nodiscard]] std::string kind_of_magic(std::string_view beginning);
// The same. A zero byte makes any file binary.
[[nodiscard]] std::string binary_kind(std::string_view beginning);
// The same, and of a file's name: a list in a .json, a table (.csv, .tsv). Their characters are
// text, but not that of documents. `beginning`: of the unpacked file.
[[nodiscard]] std::string kind_without_text(const TextFile& file, std::string_view beginning);

}  // namespace sluice
