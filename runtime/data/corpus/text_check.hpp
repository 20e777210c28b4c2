// Refuses a corpus whose text or URL is under another key. Such a run would treat all documents
// alike, and its results would look like those of a corpus without faults. Thread-safe.
#pragma once

#include <vector>

#include "runtime/data/corpus/corpus_record.hpp"

namespace sluice {

// Throws IoError if a file has JSON documents and none of them has a string under `keys.text`.
// Reads each file up to its first document with a text.
void check_texts(const std::vector<CorpusFile>& files, const RecordKeys& keys,
                 UnitReadOptions read);

// Throws IoError if no JSON document of the files has a string under `keys.url`. Reads up to the
// first document with a URL.
void check_urls(const std::vector<CorpusFile>& files, const RecordKeys& keys, UnitReadOptions read);

}  // namespace sluice
