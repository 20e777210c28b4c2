// The rows of a Parquet file as JSON lines, read by libsluice_parquet.so (parquet_module.hpp),
// which is loaded at the first Parquet file. A row is a line: the column's name is the key. Memory
// does not grow with the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/byte_source.hpp"

namespace sluice {

// `columns`: the columns to read, which must hold strings; none: all columns. Columns that JSON
// cannot hold are left out with a warning, once a file. used_bytes() is the file's share of the
// rows that are read. Throws ConfigError if the module is missing, IoError if the file is damaged
// or has other columns.
[[nodiscard]] std::unique_ptr<ByteSource> open_parquet(const TextFile& file,
                                                       const std::vector<std::string>& columns);

}  // namespace sluice
