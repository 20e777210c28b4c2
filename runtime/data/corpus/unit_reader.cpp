#include "runtime/data/corpus/unit_reader.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

}  // namespace

UnitReader::UnitReader(std::span<const CorpusFile> files, const CorpusUnit& unit,
                       const UnitReadOptions& options)
    : files_(files), unit_(unit), options_(options) {}

std::optional<RecordBatch> UnitReader::next() {
  RecordBatch batch;
  batch.first = records_;
  while (batch.bytes.size() < options_.batch_bytes && (source_ || open_part())) {
    if (files_[unit_.parts[part_].file].lines) {
      read_lines(batch);
    } else {
      read_document(batch);
    }
  }
  if (batch.records.empty() && batch.input_bytes == 0) return std::nullopt;
  records_ += static_cast<std::int64_t>(batch.records.size());
  return batch;
}

bool UnitReader::open_part() {
  if (part_ == unit_.parts.size()) return false;
  const FilePart& part = unit_.parts[part_];
  const CorpusFile& file = files_[part.file];
  // A part that starts inside the file starts behind the line that crosses its first byte, or that
  // ends just before.
  const std::int64_t from = std::max<std::int64_t>(part.begin - 1, 0);
  source_ = file.packed ? open_bytes(file.file) : open_plain_bytes(file.file, from);
  counted_bytes_ = part.begin;
  if (!file.lines) return true;
  lines_ = std::make_unique<LineReader>(*source_, options_.longest_bytes, from);
  inside_line_ = part.begin > 0;
  return true;
}

void UnitReader::close_part() {
  lines_.reset();
  source_.reset();
  ++part_;
}

void UnitReader::count_bytes(RecordBatch& batch) {
  const std::int64_t used = std::min(source_->used_bytes(), unit_.parts[part_].end);
  batch.input_bytes += std::max<std::int64_t>(used - counted_bytes_, 0);
  counted_bytes_ = std::max(counted_bytes_, used);
}

void UnitReader::add(RecordBatch& batch, std::string_view bytes, std::int64_t offset,
                     bool too_long) {
  const FilePart& part = unit_.parts[part_];
  if (too_long) bytes = {};
  const std::size_t begin = batch.bytes.size();
  batch.bytes += bytes;
  batch.records.push_back(
      {begin, batch.bytes.size(), part.file, offset, files_[part.file].lines, too_long});
}

void UnitReader::read_lines(RecordBatch& batch) {
  const FilePart& part = unit_.parts[part_];
  const std::int64_t end =
      files_[part.file].packed ? std::numeric_limits<std::int64_t>::max() : part.end;
  if (std::exchange(inside_line_, false) && !lines_->skip_line(end)) {
    batch.input_bytes += part.end - counted_bytes_;
    close_part();
    return;
  }
  std::string_view line;
  while (batch.bytes.size() < options_.batch_bytes) {
    const LineReader::Next next = lines_->next(line);
    if (next == LineReader::Next::kEnd || lines_->offset() >= end) {
      batch.input_bytes += part.end - counted_bytes_;
      close_part();
      return;
    }
    if (lines_->offset() == 0 && line.starts_with(kByteOrderMark)) line.remove_prefix(3);
    const bool too_long = next == LineReader::Next::kTooLong;
    const bool row = files_[part.file].file.format == TextFormat::kParquet;
    const std::int64_t place = row ? lines_->number() : lines_->offset();
    if (too_long || !is_blank(line)) add(batch, line, place, too_long);
  }
  count_bytes(batch);
}

void UnitReader::read_document(RecordBatch& batch) {
  std::string text;
  while (!source_->at_end() && text.size() <= options_.longest_bytes) {
    const std::size_t held = text.size();
    text.resize(held + std::min(std::max<std::size_t>(held, 1U << 20U), source_->most_left()));
    text.resize(held + source_->read(std::span(text).subspan(held)));
  }
  std::string_view document = text;
  if (document.starts_with(kByteOrderMark)) document.remove_prefix(3);
  const bool too_long = text.size() > options_.longest_bytes;
  if (!document.empty()) add(batch, document, 0, too_long);
  batch.input_bytes += unit_.parts[part_].end - counted_bytes_;
  close_part();
}

}  // namespace sluice
