#include "runtime/data/corpus/clean.hpp"

#include <memory>

#include "base/format.hpp"
#include "runtime/data/corpus/text_check.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

struct NamedFilter {
  std::string name;
  std::unique_ptr<Filter> filter;
};

class Cleaner {
 public:
  Cleaner(const CleanRequest& request, const std::vector<CorpusFile>& files)
      : keys_(request.keys), files_(files) {
    for (const FilterSpec& spec : request.filters) {
      filters_.push_back({spec.name, make_filter(spec)});
    }
  }

  [[nodiscard]] BatchResult clean(const RecordBatch& batch) const {
    BatchResult result;
    result.outputs.resize(2);
    std::int64_t kept = 0, changed = 0;
    for (const RawRecord& raw : batch.records) {
      const std::string_view bytes = batch.of(raw);
      CorpusRecord record = parse_record(raw, bytes, keys_);
      if (!record.reason.empty()) {
        reject(raw, bytes, record, std::string(record.reason), "", result);
        continue;
      }
      Document document(record.text, std::move(record.url));
      if (apply_filters(document, raw, bytes, record, result)) {
        ++kept;
        changed += document.changed();
        append_record(raw, bytes, record, document.text(), result.outputs[0]);
      }
    }
    result.counts["documents"] = static_cast<std::int64_t>(batch.records.size());
    result.counts["kept"] = kept;
    result.counts["changed"] = changed;
    return result;
  }

 private:
  bool apply_filters(Document& document, const RawRecord& raw, std::string_view bytes,
                     const CorpusRecord& record, BatchResult& result) const {
    for (const NamedFilter& named : filters_) {
      const std::optional<Rejection> rejection = named.filter->apply(document);
      if (!rejection) continue;
      const std::string value = format_text(", \"value\": {:.6g}", rejection->value);
      reject(raw, bytes, record, named.name + "." + std::string(rejection->rule), value, result);
      return false;
    }
    if (!document.text().empty()) return true;
    reject(raw, bytes, record, "filters.empty", "", result);
    return false;
  }

  void reject(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
              const std::string& reason, const std::string& more, BatchResult& result) const {
    std::string why = "\"reason\": ";
    append_json_string(reason, why);
    why += more + ", \"file\": ";
    const TextFile& file = files_[raw.file].file;
    append_json_string(file.path, why);
    why += file.format == TextFormat::kParquet ? ", \"row\": " : ", \"byte\": ";
    why += std::to_string(raw.offset);
    if (!record.error.empty()) {
      why += ", \"error\": ";
      append_json_string(record.error, why);
    }
    append_rejected(raw, bytes, record, why, result.outputs[1]);
    ++result.counts["rejected"];
    ++result.counts["rejected." + reason];
  }

  const RecordKeys& keys_;
  const std::vector<CorpusFile>& files_;
  std::vector<NamedFilter> filters_;
};

std::string fingerprint(const CleanRequest& request, const UnitRun& run) {
  Hasher hasher;
  hasher.add("sluice clean 1");
  hasher.add(fingerprint_of(run, request.unit_bytes));
  hasher.add(request.keys.text);
  hasher.add(request.keys.url);
  for (const FilterSpec& spec : request.filters) {
    hasher.add(spec.name);
    hasher.add(static_cast<std::int64_t>(spec.options.size()));
    for (const auto& [name, value] : spec.options) {
      hasher.add(name);
      hasher.add(value);
    }
  }
  return hasher.digest_hex();
}

}  // namespace

Counts clean_corpus(const CleanRequest& request) {
  const UnitRun run{.folder = request.folder,
                    .files = request.files,
                    .units = plan_units(request.files, request.unit_bytes),
                    .threads = request.threads,
                    .read = request.read,
                    .progress = request.progress};
  const Cleaner cleaner(request, run.files);
  check_texts(request.files, request.keys, request.read);
  if (request.needs_urls) check_urls(request.files, request.keys, request.read);
  WorkLog log(request.folder, fingerprint(request, run));
  const Counts counts = run_stage(
      run, {"clean", {"kept.jsonl", "rejected.jsonl"}},
      [&](std::size_t, const RecordBatch& batch) { return cleaner.clean(batch); }, log);
  write_report(request.folder, counts);
  return counts;
}

}  // namespace sluice
