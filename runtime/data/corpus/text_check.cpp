#include "runtime/data/corpus/text_check.hpp"

#include "base/error.hpp"

namespace sluice {
namespace {

// The place and fault of the first document without a text; "" if a document has a text, or if no
// line is a JSON object.
std::string fault_of(const std::vector<CorpusFile>& files, std::size_t number,
                     const RecordKeys& keys, const UnitReadOptions& read) {
  const std::int64_t bytes = files[number].file.size_bytes;
  const CorpusUnit whole{.parts = {{number, 0, bytes}}, .bytes = bytes};
  UnitReader reader(files, whole, read);
  std::string fault;
  while (const auto batch = reader.next()) {
    for (const RawRecord& raw : batch->records) {
      const CorpusRecord record = parse_record(raw, batch->of(raw), keys);
      if (record.reason.empty() || record.reason == "record.empty") return "";
      if (!fault.empty() || record.reason != "record.no_text") continue;
      // The reader of training texts has the same complaint, with the keys of the line.
      fault = place_of(files[number].file, raw) + ": " +
              parse_json_line(batch->of(raw), keys.text).error;
    }
  }
  return fault;
}

}  // namespace

void check_texts(const std::vector<CorpusFile>& files, const RecordKeys& keys,
                 UnitReadOptions read) {
  read.batch_bytes = 1;  // a record at a time: the first one decides
  for (std::size_t number = 0; number < files.size(); ++number) {
    const TextFile& file = files[number].file;
    if (file.size_bytes == 0 || !files[number].lines) continue;
    const std::string fault = fault_of(files, number, keys, read);
    if (fault.empty()) continue;
    throw IoError(file.key + ": no document of the file has a text; " + fault, file.path);
  }
}

}  // namespace sluice
