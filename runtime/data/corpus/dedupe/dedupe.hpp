// `sluice data dedupe`: of documents that are equal, or nearly so, the first in the input stays.
// OUT/kept holds the documents that stay, unchanged; OUT/removed the others with the number of
// their survivor; OUT/clusters.jsonl the clusters. The number of a document is its place in the
// input, from 0, files sorted by path. Files are the same for any number of threads, and after
// interruptions.
//
// Stages, each noted in OUT/work.log:
//   hashes     each unit: (hash, index in the unit) of the text and of each band; signatures
//   band N     external sort of one band's rows; edges between documents of equal hash
//   clusters   components of the edges: (document, survivor), sorted
//   matches    each unit, with evaluation sets: n-grams of them in the documents that stay
//   removal    each unit: kept and removed documents
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "runtime/data/corpus/corpus_record.hpp"
#include "runtime/data/corpus/dedupe/contamination.hpp"
#include "runtime/data/corpus/dedupe/minhash.hpp"
#include "runtime/data/corpus/unit_run.hpp"

namespace sluice {

struct DedupeOptions {
  bool exact = true;  // equal text in lower case, white space apart
  bool url = false;   // equal URL without its fragment
  std::optional<MinHashOptions> near = MinHashOptions{};
  // Two documents that share a band are joined if the estimated similarity reaches this; 0: always.
  double threshold = 0;
};

// "openwebtext": equal URLs; characters, 5-grams, 10 bands of 10, threshold 0.7. "fineweb": words,
// 5-grams, 14 bands of 8. "exact": equal texts alone. "none": nothing. Throws ConfigError on
// another name.
[[nodiscard]] DedupeOptions dedupe_preset(std::string_view name);

struct DedupeRequest {
  std::vector<CorpusFile> files;
  std::string folder;  // OUT
  RecordKeys keys{};
  DedupeOptions options{};
  std::vector<CorpusFile> against{};  // evaluation sets (decontaminate.hpp); none: no cut
  ContaminationOptions contamination{};
  int threads = 1;
  std::int64_t unit_bytes = 64 * kMiB;
  std::int64_t sort_bytes = 256 * kMiB;  // memory of the external sorts, over all threads
  UnitReadOptions read{};
  StageProgress progress{};
  bool needs_urls = false;  // refuse a corpus without a URL (check_urls)
};

// Counts of input documents: documents = kept + removed + dropped, and clusters, bytes. With
// evaluation sets `cut` counts those of `kept` that lost text, and `pieces` the documents that they
// became. A record without text is kept; `no_text` counts those without a string under the key.
// Throws ConfigError on wrong options, IoError on a file that cannot be read or written, or that
// has no text at all (check_texts; not for URLs alone).
Counts dedupe_corpus(const DedupeRequest& request);

}  // namespace sluice
