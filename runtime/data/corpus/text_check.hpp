// Refuses a corpus whose text is under another key. Such a run would keep or reject every document,
// and its results would look like those of a corpus without faults. Thread-safe.
#pragma once

#include <vector>

#include "runtime/data/corpus/corpus_record.hpp"

namespace sluice {

// Throws IoError if a file has JSON documents and none of them has a string under `keys.text`.
// Reads each file up to its first document with a text.
void check_texts(const std::vector<CorpusFile>& files, const RecordKeys& keys,
                 UnitReadOptions read);

}  // namespace sluice
