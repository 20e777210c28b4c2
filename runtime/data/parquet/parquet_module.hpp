// The interface between the program and libsluice_parquet.so, which holds the reader of Parquet.
// C types only: Arrow's headers stay in the module, and the program starts without Arrow. A
// ParquetRows is not thread-safe; several may be open at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

struct ParquetRows;  // an open file

struct ParquetModule {
  std::int32_t version;
  // Never null. `columns`: names of the columns to read, each of strings; none: all columns.
  ParquetRows* (*open)(const char* path, const char* const* columns, std::size_t count);
  // Why the last call failed; "": it did not.
  const char* (*error)(const ParquetRows* rows);
  // Columns that were asked for by `all columns` and that JSON cannot hold: "image (binary)".
  const char* (*left_out)(const ParquetRows* rows);
  // The next rows as JSON lines, valid until the next call. Size 0: the end, or an error.
  void (*next)(ParquetRows* rows, const char** text, std::size_t* size);
  // Share of the rows that next() has returned, 0 to 1.
  double (*done)(const ParquetRows* rows);
  void (*close)(ParquetRows* rows);
};

inline constexpr std::int32_t kParquetModuleVersion = 1;
inline constexpr char kParquetModuleSymbol[] = "sluice_parquet_module";
using ParquetModuleFunction = const ParquetModule*();

}  // namespace sluice
