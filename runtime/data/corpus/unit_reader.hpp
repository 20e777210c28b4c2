// The records of one unit in order, in batches for the threads that work on them. Memory: a batch,
// or the longest record. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/byte_source.hpp"
#include "runtime/data/corpus/unit_plan.hpp"
#include "runtime/data/json_lines.hpp"

namespace sluice {

// A line of JSON lines, or a plain file.
struct RawRecord {
  std::size_t begin = 0, end = 0;  // in RecordBatch::bytes
  std::size_t file = 0;
  std::int64_t offset = 0;  // in the file, unpacked; of Parquet the row, from 1
  bool line = false;        // of JSON lines
  bool too_long = false;    // left out: no bytes
};

struct RecordBatch {
  std::string bytes;
  std::vector<RawRecord> records;
  std::int64_t first = 0;        // number of the first record in the unit
  std::int64_t input_bytes = 0;  // of the files as they are on disk
  [[nodiscard]] std::string_view of(const RawRecord& record) const {
    return std::string_view(bytes).substr(record.begin, record.end - record.begin);
  }
};

struct UnitReadOptions {
  std::size_t batch_bytes = 1U << 20U;
  std::size_t longest_bytes = 256U << 20U;  // of a record
};

// Blank lines and empty files give no record.
class UnitReader {
 public:
  UnitReader(std::span<const CorpusFile> files, const CorpusUnit& unit,
             const UnitReadOptions& options);
  // The next batch; nothing at the end. Throws IoError as ByteSource does.
  [[nodiscard]] std::optional<RecordBatch> next();

 private:
  bool open_part();
  void close_part();
  void read_lines(RecordBatch& batch);
  void read_document(RecordBatch& batch);
  void add(RecordBatch& batch, std::string_view bytes, std::int64_t offset, bool too_long);
  void count_bytes(RecordBatch& batch);

  std::span<const CorpusFile> files_;
  const CorpusUnit& unit_;
  UnitReadOptions options_;
  std::size_t part_ = 0;
  std::unique_ptr<ByteSource> source_;
  std::unique_ptr<LineReader> lines_;
  bool inside_line_ = false;        // a line of the unit before has to be skipped
  std::int64_t counted_bytes_ = 0;  // of the part
  std::int64_t records_ = 0;
};

}  // namespace sluice
