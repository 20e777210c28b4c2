// Sorts more rows than fit in memory: sorted runs in temporary files, then a merge. The files have
// no name, so a process that is killed leaves none. Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/posix/descriptor.hpp"

namespace sluice {

// Three numbers; their meaning is the user's.
struct Row {
  std::uint64_t a = 0, b = 0, c = 0;
  auto operator<=>(const Row&) const = default;
};

// The rows of a file in order. Throws IoError.
class RowReader {
 public:
  // A file that is missing has no rows.
  explicit RowReader(const std::string& path);
  RowReader(Descriptor file, std::string path);  // `path` for messages
  // The next row, valid until drop(); nullptr at the end.
  [[nodiscard]] const Row* first();
  void drop() { ++at_; }
  // first() and drop(); false at the end.
  [[nodiscard]] bool next(Row& row);

 private:
  std::string path_;
  Descriptor file_;
  std::vector<Row> buffer_;
  std::size_t at_ = 0;
  std::int64_t offset_ = 0;
};

class RowSorter {
 public:
  // `folder` takes the temporary files.
  RowSorter(std::string folder, std::int64_t memory_bytes);
  RowSorter(const RowSorter&) = delete;
  RowSorter& operator=(const RowSorter&) = delete;

  void add(const Row& row);
  // The next row in order; equal rows come once. False at the end. No add() after the first next().
  [[nodiscard]] bool next(Row& row);

 private:
  void write_run();
  void merge_runs(std::size_t count);
  void start_merge();
  bool pop(Row& row);

  std::string folder_;
  std::size_t most_rows_;
  std::vector<Row> rows_;
  std::vector<std::unique_ptr<RowReader>> runs_;
  bool merging_ = false, any_ = false;
  Row last_;
};

// The rows of a sorted file with begin <= a < end. Throws IoError.
[[nodiscard]] std::vector<Row> rows_between(const std::string& path, std::uint64_t begin,
                                            std::uint64_t end);

}  // namespace sluice
