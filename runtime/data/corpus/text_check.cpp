#include "runtime/data/corpus/text_check.hpp"

#include "base/error.hpp"

namespace sluice {
namespace {

enum class Presence { kFound, kMissing, kUnknown };  // kUnknown: the line is no whole JSON object

Presence presence_of_text(const CorpusRecord& record) {
  if (record.reason == "record.no_text") return Presence::kMissing;
  const bool has_text = record.reason.empty() || record.reason == "record.empty";
  return has_text ? Presence::kFound : Presence::kUnknown;
}

Presence presence_of_url(const CorpusRecord& record) {
  if (presence_of_text(record) != Presence::kFound) return Presence::kUnknown;
  return record.url ? Presence::kFound : Presence::kMissing;
}

// What a file has under one key.
struct Search {
  bool found = false;
  std::string fault;  // place and fault of the first document without the value; "": none
};

Search search(const std::vector<CorpusFile>& files, std::size_t number, const RecordKeys& keys,
              const std::string& key, Presence (*presence_of)(const CorpusRecord&),
              UnitReadOptions read) {
  const std::int64_t bytes = files[number].file.size_bytes;
  Search result;
  if (bytes == 0 || !files[number].lines) return result;
  read.batch_bytes = 1;  // a record at a time: the first one decides
  const CorpusUnit whole{.parts = {{number, 0, bytes}}, .bytes = bytes};
  UnitReader reader(files, whole, read);
  while (const auto batch = reader.next()) {
    for (const RawRecord& raw : batch->records) {
      const Presence presence = presence_of(parse_record(raw, batch->of(raw), keys));
      if (presence == Presence::kFound) return {.found = true, .fault = ""};
      if (presence == Presence::kUnknown || !result.fault.empty()) continue;
      // The reader of training texts has the same complaint, with the keys of the line.
      result.fault =
          place_of(files[number].file, raw) + ": " + parse_json_line(batch->of(raw), key).error;
    }
  }
  return result;
}

}  // namespace

void check_texts(const std::vector<CorpusFile>& files, const RecordKeys& keys,
                 UnitReadOptions read) {
  for (std::size_t number = 0; number < files.size(); ++number) {
    const Search texts = search(files, number, keys, keys.text, presence_of_text, read);
    if (texts.fault.empty()) continue;
    const TextFile& file = files[number].file;
    throw IoError(file.key + ": no document of the file has a text; " + texts.fault, file.path);
  }
}

void check_urls(const std::vector<CorpusFile>& files, const RecordKeys& keys,
                UnitReadOptions read) {
  std::string fault, path;
  for (std::size_t number = 0; number < files.size(); ++number) {
    const Search urls = search(files, number, keys, keys.url, presence_of_url, read);
    if (urls.found) return;
    if (!fault.empty() || urls.fault.empty()) continue;
    path = files[number].file.path;
    fault = files[number].file.key + ": no document has a URL; " +
            urls.fault.substr(0, urls.fault.find("; "));  // without the advice about texts
  }
  if (!fault.empty()) throw IoError(fault + "; --url-key names the key of the URL", path);
}

}  // namespace sluice
