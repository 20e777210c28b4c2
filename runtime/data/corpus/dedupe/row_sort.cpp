#include "runtime/data/corpus/dedupe/row_sort.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>

#include "base/error.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

constexpr std::size_t kBufferRows = 8192;  // 192 KiB
constexpr std::size_t kFanIn = 64;         // runs merged at once

// A file without a name.
Descriptor make_unnamed(const std::string& folder) {
  Descriptor file = open_descriptor(folder, O_TMPFILE | O_RDWR);
  if (file) return file;
  std::string name = folder + "/sort-XXXXXX";
  file.reset(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) throw_io_error("make a temporary file in", folder, errno, write_remedy(errno));
  ::unlink(name.c_str());
  return file;
}

void write_rows(int fd, std::span<const Row> rows, const std::string& folder) {
  if (const int error = write_fully(fd, std::as_bytes(rows))) {
    throw_io_error("write a temporary file in", folder, error, write_remedy(error));
  }
}

// Reads up to buffer.size() rows at `offset`; the number read.
std::size_t read_rows(int fd, std::span<Row> buffer, std::int64_t offset, const std::string& path) {
  const auto bytes = std::as_writable_bytes(buffer);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(fd, bytes.data() + done, bytes.size() - done,
                                  offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("read", path, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done % sizeof(Row) != 0) {
    throw IoError(
        path + " is damaged: it ends inside a row; remove the output folder and start again", path);
  }
  return done / sizeof(Row);
}

}  // namespace

RowReader::RowReader(const std::string& path)
    : path_(path), file_(open_descriptor(path, O_RDONLY)) {
  if (!file_ && errno != ENOENT) throw_io_error("read", path, errno);
}

RowReader::RowReader(Descriptor file, std::string path)
    : path_(std::move(path)), file_(std::move(file)) {}

const Row* RowReader::first() {
  if (at_ == buffer_.size() && file_) {
    buffer_.resize(kBufferRows);
    buffer_.resize(read_rows(file_.get(), buffer_, offset_, path_));
    offset_ += static_cast<std::int64_t>(buffer_.size() * sizeof(Row));
    at_ = 0;
    if (buffer_.empty()) file_.reset();
  }
  return at_ < buffer_.size() ? &buffer_[at_] : nullptr;
}

bool RowReader::next(Row& row) {
  const Row* const found = first();
  if (found == nullptr) return false;
  row = *found;
  drop();
  return true;
}

RowSorter::RowSorter(std::string folder, std::int64_t memory_bytes)
    : folder_(std::move(folder)),
      most_rows_(std::max<std::size_t>(static_cast<std::size_t>(memory_bytes) / sizeof(Row), 2)) {
  rows_.reserve(most_rows_);  // pages are taken when first written
}

void RowSorter::add(const Row& row) {
  check(!merging_, "RowSorter::add after next");
  if (rows_.size() == most_rows_) write_run();
  rows_.push_back(row);
}

void RowSorter::write_run() {
  std::sort(rows_.begin(), rows_.end());
  Descriptor file = make_unnamed(folder_);
  write_rows(file.get(), rows_, folder_);
  rows_.clear();
  runs_.push_back(std::make_unique<RowReader>(std::move(file), folder_));
}

// The first `count` runs become one.
void RowSorter::merge_runs(std::size_t count) {
  std::vector<std::unique_ptr<RowReader>> rest(
      std::make_move_iterator(runs_.begin() + static_cast<std::ptrdiff_t>(count)),
      std::make_move_iterator(runs_.end()));
  runs_.resize(count);
  Descriptor file = make_unnamed(folder_);
  start_merge();
  std::vector<Row> buffer;
  Row row;
  while (pop(row)) {
    buffer.push_back(row);
    if (buffer.size() < kBufferRows) continue;
    write_rows(file.get(), buffer, folder_);
    buffer.clear();
  }
  write_rows(file.get(), buffer, folder_);
  runs_ = std::move(rest);
  runs_.push_back(std::make_unique<RowReader>(std::move(file), folder_));
}

namespace {
// Heap order: the smallest first row on top. No run is empty.
struct LaterRun {
  template <class RunPtr>
  bool operator()(const RunPtr& x, const RunPtr& y) const {
    return *y->first() < *x->first();
  }
};
}  // namespace

void RowSorter::start_merge() { std::make_heap(runs_.begin(), runs_.end(), LaterRun()); }

bool RowSorter::pop(Row& row) {
  if (runs_.empty()) return false;
  std::pop_heap(runs_.begin(), runs_.end(), LaterRun());
  row = *runs_.back()->first();
  runs_.back()->drop();
  if (runs_.back()->first() == nullptr) {
    runs_.pop_back();
  } else {
    std::push_heap(runs_.begin(), runs_.end(), LaterRun());
  }
  return true;
}

bool RowSorter::next(Row& row) {
  if (!merging_) {
    if (!rows_.empty()) write_run();
    rows_ = {};
    while (runs_.size() > kFanIn) merge_runs(kFanIn);
    start_merge();
    merging_ = true;
  }
  while (pop(row)) {
    if (any_ && row == last_) continue;
    any_ = true;
    last_ = row;
    return true;
  }
  return false;
}

std::vector<Row> rows_between(const std::string& path, std::uint64_t begin, std::uint64_t end) {
  const Descriptor file = open_descriptor(path, O_RDONLY);
  if (!file) throw_io_error("read", path, errno);
  const off_t bytes = ::lseek(file.get(), 0, SEEK_END);
  if (bytes < 0) throw_io_error("read", path, errno);
  constexpr auto kRow = static_cast<std::int64_t>(sizeof(Row));
  std::int64_t low = 0, high = bytes / kRow;
  Row row;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (read_rows(file.get(), {&row, 1}, middle * kRow, path) == 1 && row.a < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::vector<Row> rows;
  for (; read_rows(file.get(), {&row, 1}, low * kRow, path) == 1 && row.a < end; ++low) {
    rows.push_back(row);
  }
  return rows;
}

}  // namespace sluice
