#include "runtime/data/corpus/dedupe/dedupe.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/format.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/corpus/dedupe/band_edges.hpp"
#include "runtime/data/corpus/dedupe/clusters.hpp"
#include "runtime/data/corpus/dedupe/decontaminate.hpp"
#include "runtime/data/corpus/dedupe/normal_forms.hpp"
#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/corpus/text_check.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/parallel_items.hpp"

namespace sluice {
namespace {

constexpr const char* kSignatures = "work/signatures.bin";
constexpr const char* kMatches = "work/matches.bin";

std::string band_output(std::size_t band) { return format_text("work/band{:03}.bin", band); }

Hash128 hash_of(const std::string& text) { return hash128(std::as_bytes(std::span(text))); }

template <class T>
void append_bytes(const T& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void check_request(const DedupeRequest& request) {
  const DedupeOptions& options = request.options;
  if (!options.exact && !options.url && !options.near && request.against.empty()) {
    throw ConfigError(
        "dedupe has nothing to look for; turn on equal texts, equal URLs or near texts, or name "
        "evaluation sets");
  }
  if (!(options.threshold >= 0 && options.threshold <= 1)) {
    throw ConfigError("dedupe: the threshold is a similarity from 0 to 1");
  }
}

std::unique_ptr<MinHasher> make_hasher(const std::optional<MinHashOptions>& near) {
  if (!near) return nullptr;
  return std::make_unique<MinHasher>(*near);
}

std::unique_ptr<Decontaminator> make_decontaminator(const DedupeRequest& request) {
  if (request.against.empty()) return nullptr;
  return std::make_unique<Decontaminator>(request.contamination, request.against, request.keys,
                                          request.read);
}

std::string fingerprint(const DedupeRequest& request, const UnitRun& run) {
  Hasher hasher;
  hasher.add("sluice dedupe 2");
  hasher.add(fingerprint_of(run, request.unit_bytes));
  hasher.add(request.keys.text);
  hasher.add(request.keys.url);
  const DedupeOptions& options = request.options;
  hasher.add(std::int64_t{options.exact});
  hasher.add(std::int64_t{options.url});
  hasher.add(format_text("{}", options.threshold));
  if (options.near) {
    const MinHashOptions& near = *options.near;
    hasher.add(format_text("{} {} {} {} {} {}", static_cast<int>(near.unit), near.shingle,
                           near.normalise, near.bands, near.rows, near.seed));
  }
  if (request.against.empty()) return hasher.digest_hex();
  UnitRun sets{.folder = "", .files = request.against, .units = {}};
  hasher.add(fingerprint_of(sets, request.unit_bytes));
  const ContaminationOptions& cut = request.contamination;
  hasher.add(format_text("{} {} {} {} {} {}", cut.most_words, cut.least_words, cut.common,
                         cut.cut_characters, cut.least_characters, cut.most_pieces));
  return hasher.digest_hex();
}

// Returns the number of clusters.
std::int64_t write_clusters(RowSorter& by_survivor, const std::string& path) {
  AtomicFile::remove_leftovers(path);
  AtomicFile file(path);
  std::int64_t clusters = 0;
  std::uint64_t survivor = 0;
  for (Row row; by_survivor.next(row);) {
    if (clusters == 0 || row.a != survivor) {
      survivor = row.a;
      if (clusters++ > 0) file.append("]}\n");
      file.append(format_text("{{\"survivor\": {}, \"removed\": [{}", row.a, row.b));
    } else {
      file.append(format_text(", {}", row.b));
    }
  }
  if (clusters > 0) file.append("]}\n");
  file.commit();
  return clusters;
}

class Deduper {
 public:
  explicit Deduper(const DedupeRequest& request)
      : request_(request),
        run_{.folder = request.folder,
             .files = request.files,
             .units = plan_units(request.files, request.unit_bytes),
             .threads = request.threads,
             .read = request.read,
             .progress = request.progress},
        near_(request.options.near.value_or(MinHashOptions{})),
        hasher_(make_hasher(request.options.near)),
        exact_bands_((request.options.exact ? 1U : 0U) + (request.options.url ? 1U : 0U)),
        bands_(exact_bands_ + (hasher_ ? static_cast<std::size_t>(near_.bands) : 0U)),
        decontaminator_(make_decontaminator(request)),
        log_(request.folder, fingerprint(request, run_)) {
    make_folder(request.folder + "/work");
  }

  Counts run() {
    Counts hashed = run_stage(
        run_, {"hashes", hash_outputs()},
        [this](std::size_t, const RecordBatch& batch) { return hash(batch); }, log_);
    count_documents();
    find_all_edges();
    find_clusters();
    if (decontaminator_) find_matches();
    Counts counts = run_stage(
        run_, {"removal", {"kept.jsonl", "removed.jsonl"}},
        [this](std::size_t unit, const RecordBatch& batch) { return remove(unit, batch); }, log_);
    if (bands_ > 0) counts["no_text"] = hashed["no_text"];
    counts["clusters"] = log_.find("clusters", 0)->at("clusters");
    write_report(request_.folder, counts);
    std::error_code ignored;
    std::filesystem::remove_all(request_.folder + "/work", ignored);
    return counts;
  }

 private:
  [[nodiscard]] std::vector<std::string> hash_outputs() const {
    std::vector<std::string> outputs;
    for (std::size_t band = 0; band < bands_; ++band) outputs.push_back(band_output(band));
    if (verifies()) outputs.emplace_back(kSignatures);
    return outputs;
  }
  [[nodiscard]] bool verifies() const { return hasher_ && request_.options.threshold > 0; }

  // Rows (hash, hash, index in the unit); signatures of all records, zeros where there is none.
  [[nodiscard]] BatchResult hash(const RecordBatch& batch) const {
    BatchResult result;
    result.outputs.resize(bands_ + (verifies() ? 1 : 0));
    auto index = static_cast<std::uint64_t>(batch.first);
    for (const RawRecord& raw : batch.records) {
      if (bands_ == 0) break;  // the cut counts what has no text
      const CorpusRecord record = parse_record(raw, batch.of(raw), request_.keys);
      result.counts["no_text"] += record.reason == "record.no_text";
      std::size_t band = 0;
      const auto add = [&](const Hash128& key) {
        append_bytes(Row{key.high, key.low, index}, result.outputs[band]);
      };
      if (request_.options.exact) {
        if (record.reason.empty()) add(hash_of(normal_text(record.text)));
        ++band;
      }
      if (request_.options.url) {
        if (record.url && !trim(*record.url).empty()) add(hash_of(normal_url(*record.url)));
        ++band;
      }
      if (hasher_) hash_near(record, band, add, result);
      ++index;
    }
    result.counts["documents"] = static_cast<std::int64_t>(batch.records.size());
    return result;
  }

  template <class Add>
  void hash_near(const CorpusRecord& record, std::size_t& band, const Add& add,
                 BatchResult& result) const {
    std::vector<std::uint32_t> signature(near_.values());
    const std::vector<std::uint64_t> shingles = hasher_->shingles(record.text);
    if (!shingles.empty()) {
      signature = hasher_->signature(shingles);
      for (int b = 0; b < near_.bands; ++b, ++band) {
        add(hasher_->band(signature, b));
      }
    }
    if (!verifies()) return;
    for (const std::uint32_t value : signature) append_bytes(value, result.outputs.back());
  }

  void count_documents() {
    first_ = {0};
    for (std::size_t unit = 0; unit < run_.units.size(); ++unit) {
      const Counts* counts = log_.find("hashes", static_cast<std::int64_t>(unit));
      const auto found = counts->find("documents");
      const std::int64_t documents = found == counts->end() ? 0 : found->second;
      first_.push_back(first_.back() + static_cast<std::uint64_t>(documents));
    }
  }

  [[nodiscard]] std::string edge_file(std::size_t band) const {
    return request_.folder + format_text("/work/edges{:03}.bin", band);
  }

  // Several bands at a time; each has its share of the memory.
  void find_all_edges() {
    std::vector<std::size_t> waiting;
    for (std::size_t band = 0; band < bands_; ++band) {
      if (log_.find("band", static_cast<std::int64_t>(band)) == nullptr) waiting.push_back(band);
    }
    const auto bytes = static_cast<std::int64_t>(first_.back() * sizeof(Row));
    std::int64_t done = bytes * static_cast<std::int64_t>(bands_ - waiting.size());
    const auto tell = [&] {
      const std::int64_t all = bytes * static_cast<std::int64_t>(bands_);
      if (run_.progress && !waiting.empty()) run_.progress("bands", done, all);
    };
    tell();
    const std::int64_t threads = std::clamp<std::int64_t>(
        request_.threads, 1, std::max<std::int64_t>(static_cast<std::int64_t>(waiting.size()), 1));
    std::mutex mutex;
    for_each_item(static_cast<int>(threads), waiting.size(), [&](std::size_t i) {
      const std::int64_t edges = find_edges(waiting[i], request_.sort_bytes / threads);
      const std::lock_guard lock(mutex);
      log_.finish("band", static_cast<std::int64_t>(waiting[i]), {{"edges", edges}});
      done += bytes;
      tell();
    });
  }

  [[nodiscard]] std::int64_t find_edges(std::size_t band, std::int64_t memory_bytes) const {
    RowSorter sorter(request_.folder, memory_bytes);
    for (std::size_t unit = 0; unit < run_.units.size(); ++unit) {
      RowReader rows(unit_file(request_.folder, band_output(band), unit));
      for (Row row; rows.next(row);) sorter.add({row.a, row.b, row.c + first_[unit]});
    }
    AtomicFile::remove_leftovers(edge_file(band));
    AtomicFile file(edge_file(band));
    std::int64_t edges = 0;
    std::unique_ptr<SignatureFiles> signatures;
    if (band >= exact_bands_ && verifies()) {
      signatures =
          std::make_unique<SignatureFiles>(request_.folder, kSignatures, first_, near_.values());
    }
    band_edges(sorter, signatures.get(), request_.options.threshold,
               [&](std::uint64_t x, std::uint64_t y) {
                 const Row row{x, y, 0};
                 file.append(std::as_bytes(std::span(&row, 1)));
                 ++edges;
               });
    failpoint("corpus.commit");
    file.commit();
    return edges;
  }

  [[nodiscard]] std::string cluster_file() const { return request_.folder + "/work/clusters.bin"; }

  void find_clusters() {
    if (log_.find("clusters", 0) != nullptr) return;
    AtomicFile::remove_leftovers(cluster_file());
    AtomicFile file(cluster_file());
    RowSorter by_survivor(request_.folder, request_.sort_bytes / 4);
    connect_components(
        [&](const auto& edge) {
          for (std::size_t band = 0; band < bands_; ++band) {
            RowReader rows(edge_file(band));
            for (Row row; rows.next(row);) edge(row.a, row.b);
          }
        },
        request_.folder, request_.sort_bytes,
        [&](std::uint64_t document, std::uint64_t least) {
          const Row row{document, least, 0};
          file.append(std::as_bytes(std::span(&row, 1)));
          by_survivor.add({least, document, 0});
        });
    const std::int64_t clusters = write_clusters(by_survivor, request_.folder + "/clusters.jsonl");
    failpoint("corpus.commit");
    file.commit();
    log_.finish("clusters", 0, {{"clusters", clusters}});
  }

  // Rows of evaluation n-grams in the documents that stay.
  void find_matches() {
    (void)run_stage(
        run_, {"matches", {kMatches}},
        [this](std::size_t unit, const RecordBatch& batch) {
          BatchResult result;
          result.outputs.resize(1);
          const std::vector<Row> removed = removed_of(unit, batch);
          auto next = removed.begin();
          std::uint64_t document = number_of(unit, batch);
          for (const RawRecord& raw : batch.records) {
            if (next != removed.end() && next->a == document) {
              ++next;
            } else {
              const CorpusRecord record = parse_record(raw, batch.of(raw), request_.keys);
              decontaminator_->find(record.text, result.outputs[0]);
            }
            ++document;
          }
          return result;
        },
        log_);
    for (std::size_t unit = 0; unit < run_.units.size(); ++unit) {
      decontaminator_->count(unit_file(request_.folder, kMatches, unit));
    }
  }

  [[nodiscard]] std::uint64_t number_of(std::size_t unit, const RecordBatch& batch) const {
    return first_[unit] + static_cast<std::uint64_t>(batch.first);
  }
  // (document, survivor) of the batch's duplicates.
  [[nodiscard]] std::vector<Row> removed_of(std::size_t unit, const RecordBatch& batch) const {
    const std::uint64_t first = number_of(unit, batch);
    return rows_between(cluster_file(), first, first + batch.records.size());
  }

  [[nodiscard]] BatchResult remove(std::size_t unit, const RecordBatch& batch) const {
    BatchResult result;
    result.outputs.resize(2);
    std::uint64_t document = number_of(unit, batch);
    const std::vector<Row> removed = removed_of(unit, batch);
    auto next = removed.begin();
    result.counts["documents"] = static_cast<std::int64_t>(batch.records.size());
    for (const RawRecord& raw : batch.records) {
      const bool duplicate = next != removed.end() && next->a == document;
      const std::string_view bytes = batch.of(raw);
      std::string why;
      if (raw.too_long) why = "\"reason\": \"record.too_long\"";
      if (duplicate) {
        why = format_text("\"reason\": \"duplicate\", \"document\": {}, \"of\": {}", document,
                          next->b);
        ++next;
      }
      write(raw, bytes, why, result);
      ++document;
    }
    return result;
  }

  // The record as it came in; to the removed ones if there is a reason.
  void write(const RawRecord& raw, std::string_view bytes, const std::string& why,
             BatchResult& result) const {
    if (why.empty() && decontaminator_) return decontaminator_->cut(raw, bytes, result);
    ++result.counts[why.empty() ? "kept" : "removed"];
    if (why.empty() && raw.line) {  // needs no parsing
      result.outputs[0].append(bytes).append("\n");
      return;
    }
    const CorpusRecord record = parse_record(raw, bytes, request_.keys);
    if (why.empty()) {
      append_unchanged(raw, bytes, record, result.outputs[0]);
    } else {
      append_rejected(raw, bytes, record, why, result.outputs[1]);
    }
  }

  const DedupeRequest& request_;
  UnitRun run_;
  MinHashOptions near_;                // of hasher_
  std::unique_ptr<MinHasher> hasher_;  // nullptr: near texts are not looked for
  std::size_t exact_bands_, bands_;    // the exact ones first
  std::unique_ptr<Decontaminator> decontaminator_;
  WorkLog log_;
  std::vector<std::uint64_t> first_;  // number of each unit's first document
};

}  // namespace

DedupeOptions dedupe_preset(std::string_view name) {
  if (name == "none") return {.exact = false, .near = std::nullopt};
  if (name == "exact") return {.near = std::nullopt};
  if (name == "fineweb") return {};
  if (name == "openwebtext") {
    return {.url = true,
            .near = MinHashOptions{.unit = ShingleUnit::kCharacters,
                                   .normalise = false,
                                   .bands = 10,
                                   .rows = 10,
                                   .seed = 1234},
            .threshold = 0.7};
  }
  throw ConfigError("no preset '" + std::string(name) +
                    "'; the presets: openwebtext, fineweb, exact, none");
}

Counts dedupe_corpus(const DedupeRequest& request) {
  check_request(request);
  const DedupeOptions& options = request.options;
  if (options.exact || options.near || !request.against.empty()) {  // not for URLs alone
    check_texts(request.files, request.keys, request.read);
  }
  if (request.needs_urls) check_urls(request.files, request.keys, request.read);
  return Deduper(request).run();
}

}  // namespace sluice
