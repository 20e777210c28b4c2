// libsluice_parquet.so: the rows of a Parquet file as JSON lines, by Arrow. Memory: a batch of rows
// and a page of each column, whatever the size of the file and of its row groups.
#include "runtime/data/parquet/parquet_module.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/parquet/json_row.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kBatchBytes = 8LL << 20U;  // of columns, unpacked
constexpr std::int64_t kMostRows = 1024;          // of a batch: a dictionary may repeat long texts
constexpr std::int64_t kMostMemory = 2LL << 30U;  // that a damaged file can ask for
constexpr std::size_t kTextBytes = 1U << 20U;     // of JSON that next() returns, or one row
constexpr std::int64_t kReadBytes = 1LL << 20U;   // of a column chunk at a time

// The first line: Arrow appends a stack of its own calls.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

struct ParquetRows {
 public:
  ParquetRows(const std::string& path, const std::vector<std::string>& columns) {
    guarded([&] { return open(path, columns); });
  }

  void next(const char** text, std::size_t* size) {
    text_.clear();
    error_.clear();
    guarded([&] { return fill(); });
    if (!error_.empty()) text_.clear();
    *text = text_.data();
    *size = text_.size();
  }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const std::string& left_out() const { return left_out_; }
  [[nodiscard]] double done() const {
    return rows_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(rows_)) : 1;
  }

 private:
  // Arrow reports damage by a Status, libparquet by an exception.
  template <typename Call>
  void guarded(const Call& call) {
    try {
      const arrow::Status status = call();
      if (!status.ok()) error_ = first_line(status.message());
    } catch (const std::exception& error) {
      error_ = first_line(error.what());
    }
  }

  arrow::Status open(const std::string& path, const std::vector<std::string>& columns) {
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, &pool_));
    parquet::ReaderProperties reading(&pool_);
    reading.enable_buffered_stream();
    reading.set_buffer_size(kReadBytes);
    reading.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties batches;
    batches.set_pre_buffer(false);
    batches.set_use_threads(false);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(file, reading));
    builder.memory_pool(&pool_)->properties(batches);
    ARROW_RETURN_NOT_OK(builder.Build(&reader_));
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader_->GetSchema(&schema));
    ARROW_RETURN_NOT_OK(choose_columns(*schema, columns));
    return start();
  }

  arrow::Status choose_columns(const arrow::Schema& schema, const std::vector<std::string>& names) {
    for (const auto& field : schema.fields()) {
      if (!names.empty()) break;
      if (has_json_form(*field->type())) {
        chosen_.insert(field->name());
      } else {
        left_out_ += (left_out_.empty() ? "" : ", ") + describe(*field);
      }
    }
    for (const std::string& name : names) {
      const auto field = schema.GetFieldByName(name);
      if (!field) {
        return arrow::Status::Invalid("no column, or several, named '", name, "'; the columns are ",
                                      list(schema));
      }
      if (!is_string_type(*field->type())) {
        return arrow::Status::Invalid("the column '", name, "' has the type ",
                                      field->type()->ToString(), ", not string; the columns are ",
                                      list(schema));
      }
      chosen_.insert(name);
    }
    return arrow::Status::OK();
  }

  static std::string describe(const arrow::Field& field) {
    return field.name() + " (" + first_line(field.type()->ToString()) + ")";
  }
  static std::string list(const arrow::Schema& schema) {
    constexpr int kMost = 20;
    std::string text;
    for (int i = 0; i < std::min(schema.num_fields(), kMost); ++i) {
      text += (i > 0 ? ", " : "") + describe(*schema.field(i));
    }
    return text + (schema.num_fields() > kMost ? ", ..." : schema.num_fields() == 0 ? "none" : "");
  }

  arrow::Status start() {
    const auto metadata = reader_->parquet_reader()->metadata();
    rows_ = metadata->num_rows();
    std::vector<int> leaves, groups;
    for (int i = 0; i < metadata->num_columns(); ++i) {
      const auto path = metadata->schema()->Column(i)->path()->ToDotVector();
      if (!path.empty() && chosen_.contains(path[0])) leaves.push_back(i);
    }
    std::int64_t row_bytes = 1;
    for (int g = 0; g < metadata->num_row_groups(); ++g) {
      const auto group = metadata->RowGroup(g);
      std::int64_t bytes = 0;
      for (const int leaf : leaves) {
        bytes += std::clamp<std::int64_t>(group->ColumnChunk(leaf)->total_uncompressed_size(), 0,
                                          kMostMemory);
      }
      row_bytes = std::max(row_bytes, bytes / std::max<std::int64_t>(1, group->num_rows()));
      groups.push_back(g);
    }
    reader_->set_batch_size(std::clamp<std::int64_t>(kBatchBytes / row_bytes, 1, kMostRows));
    ARROW_ASSIGN_OR_RAISE(batches_, reader_->GetRecordBatchReader(groups, leaves));
    return arrow::Status::OK();
  }

  arrow::Status fill() {
    while (text_.size() < kTextBytes) {
      if (!batch_ || row_ == batch_->num_rows()) {
        batch_.reset();
        row_ = 0;
        ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch_));
        if (!batch_) return arrow::Status::OK();
        ARROW_RETURN_NOT_OK(batch_->Validate());
        continue;
      }
      append_row();
      ++row_;
      ++done_;
    }
    return arrow::Status::OK();
  }

  void append_row() {
    text_ += '{';
    for (int c = 0; c < batch_->num_columns(); ++c) {
      if (c > 0) text_ += ',';
      append_json_text(batch_->column_name(c), text_);
      text_ += ':';
      append_json_value(*batch_->column(c), row_, text_);
    }
    text_ += "}\n";
  }

  // The order of destruction: batches before the reader, the reader before its memory.
  arrow::ProxyMemoryPool counted_{arrow::system_memory_pool()};
  arrow::CappedMemoryPool pool_{&counted_, kMostMemory};
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::set<std::string> chosen_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t rows_ = 0, done_ = 0, row_ = 0;  // of the file, returned, next of the batch
  std::string text_, error_, left_out_;
};

namespace {

ParquetRows* open_rows(const char* path, const char* const* columns, std::size_t count) {
  return new ParquetRows(path, {columns, columns + count});
}
const char* error_of(const ParquetRows* rows) { return rows->error().c_str(); }
const char* left_out_of(const ParquetRows* rows) { return rows->left_out().c_str(); }
void next_of(ParquetRows* rows, const char** text, std::size_t* size) { rows->next(text, size); }
double done_of(const ParquetRows* rows) { return rows->done(); }
void close_rows(ParquetRows* rows) { delete rows; }

constexpr ParquetModule kModule{
    kParquetModuleVersion, open_rows, error_of, left_out_of, next_of, done_of, close_rows};

}  // namespace

extern "C" const ParquetModule* sluice_parquet_module() { return &kModule; }

}  // namespace sluice
