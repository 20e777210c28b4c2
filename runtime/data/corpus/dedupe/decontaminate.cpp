#include "runtime/data/corpus/dedupe/decontaminate.hpp"

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/corpus/dedupe/row_sort.hpp"

namespace sluice {
namespace {

void write_pieces(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                  const std::vector<std::string_view>& pieces, std::string& out) {
  std::size_t number = 0;
  for (const std::string_view piece : pieces) {
    std::string line;
    append_record(raw, bytes, record, piece, line);
    // A record with a text has at least one member.
    if (pieces.size() > 1) {
      line.insert(line.find('{') + 1, format_text("\"_piece\": {}, ", number++));
    }
    out += line;
  }
}

}  // namespace

void append_unchanged(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                      std::string& out) {
  if (raw.line) {
    out.append(bytes).append("\n");
  } else {
    append_record(raw, bytes, record, record.text, out);
  }
}

Decontaminator::Decontaminator(const ContaminationOptions& options,
                               const std::vector<CorpusFile>& sets, const RecordKeys& keys,
                               const UnitReadOptions& read)
    : options_(options), keys_(keys), grams_(options) {
  for (const CorpusUnit& unit : plan_units(sets, 64 * kMiB)) {
    UnitReader reader(sets, unit, read);
    while (const auto batch = reader.next()) {
      for (const RawRecord& raw : batch->records) {
        const CorpusRecord record = parse_record(raw, batch->of(raw), keys_);
        if (!record.error.empty()) {
          const TextFile& set = sets[raw.file].file;
          throw IoError("evaluation set " + place_of(set, raw) + ": " + record.error, set.path);
        }
        grams_.add(record.text);
      }
    }
  }
  if (grams_.size() == 0) {
    throw ConfigError(
        format_text("the evaluation sets have no text of at least {} words", options.least_words));
  }
  counts_.resize(grams_.size());
}

void Decontaminator::find(std::string_view text, std::string& rows) const {
  for (const SharedRun& run : grams_.find(text)) {
    const Row row{run.gram, 0, 0};
    rows.append(reinterpret_cast<const char*>(&row), sizeof row);
  }
}

void Decontaminator::count(const std::string& path) {
  RowReader rows(path);
  for (Row row; rows.next(row);) {
    check(row.a < counts_.size(), "a match of no n-gram");
    ++counts_[row.a];
  }
}

void Decontaminator::cut(const RawRecord& raw, std::string_view bytes, BatchResult& result) const {
  const CorpusRecord record = parse_record(raw, bytes, keys_);
  result.counts["no_text"] += record.reason == "record.no_text";
  const auto pieces = grams_.pieces(record.text, counts_);
  if (pieces.size() == 1 && pieces[0].size() == record.text.size()) {
    append_unchanged(raw, bytes, record, result.outputs[0]);
    ++result.counts["kept"];
    return;
  }
  const bool dropped = pieces.empty() || pieces.size() > options_.most_pieces;
  append_rejected(raw, bytes, record,
                  format_text("\"reason\": \"contaminated.{}\", \"pieces\": {}",
                              dropped ? "dropped" : "cut", pieces.size()),
                  result.outputs[1]);
  ++result.counts[dropped ? "dropped" : "cut"];
  if (dropped) return;
  write_pieces(raw, bytes, record, pieces, result.outputs[0]);
  ++result.counts["kept"];
  result.counts["pieces"] += static_cast<std::int64_t>(pieces.size());
}

}  // namespace sluice
