// `sluice data clean`: documents through filters. OUT/kept holds the documents that stay, as JSON
// lines; OUT/rejected the others, unchanged, with the filter and its rule. OUT/report.json has the
// counts. A call that was killed continues at the unit that was not finished; files and counts are
// the same for any number of threads.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "runtime/data/corpus/corpus_record.hpp"
#include "runtime/data/corpus/filters/filter.hpp"
#include "runtime/data/corpus/unit_run.hpp"

namespace sluice {

struct CleanRequest {
  std::vector<CorpusFile> files;
  std::string folder;  // OUT
  RecordKeys keys{};
  std::vector<FilterSpec> filters{};  // in their order
  int threads = 1;
  std::int64_t unit_bytes = 64 * kMiB;
  UnitReadOptions read{};
  StageProgress progress{};
  bool needs_urls = false;  // refuse a corpus without a URL (check_urls)
};

// Counts: documents, kept, changed, rejected, rejected.FILTER.RULE, bytes (of the input files).
// Throws ConfigError on a wrong filter, IoError on a file that cannot be read or written, or that
// has no text at all (check_texts).
Counts clean_corpus(const CleanRequest& request);

}  // namespace sluice
