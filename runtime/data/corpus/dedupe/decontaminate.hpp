// Cuts out of documents what they share with evaluation sets (contamination.hpp), for `sluice data
// dedupe --against`. First find() for every document, then count(), then cut() for every document:
// an n-gram that the corpus has often stays. Memory grows with the evaluation sets, not with the
// documents. find() and cut() are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/corpus/corpus_record.hpp"
#include "runtime/data/corpus/dedupe/contamination.hpp"
#include "runtime/data/corpus/unit_run.hpp"

namespace sluice {

class Decontaminator {
 public:
  // Reads the evaluation sets. Throws ConfigError on wrong options or sets without an n-gram,
  // IoError on a set with a record without text.
  Decontaminator(const ContaminationOptions& options, const std::vector<CorpusFile>& sets,
                 const RecordKeys& keys, const UnitReadOptions& read);

  // Appends a row for each n-gram of the text that a set has.
  void find(std::string_view text, std::string& rows) const;
  // Counts the rows of a file of find(); a file that is missing has none.
  void count(const std::string& path);
  // Writes the record without these n-grams to outputs[0]; a record that falls into several pieces
  // becomes several lines with a first key "_piece". A record that is cut or dropped goes to
  // outputs[1] as it came in, with the reason. Counts: kept (lines), cut, dropped.
  void cut(const RawRecord& raw, std::string_view bytes, BatchResult& result) const;

 private:
  ContaminationOptions options_;
  RecordKeys keys_;
  EvaluationGrams grams_;
  std::vector<std::int64_t> counts_;  // of each n-gram in the corpus
};

// A record that stays as it is: the line itself, or {"text": ...} of a plain file.
void append_unchanged(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                      std::string& out);

}  // namespace sluice
