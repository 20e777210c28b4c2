// The input files of a corpus command.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/corpus/unit_plan.hpp"

namespace sluice {

// Each spec is a file, a folder or a glob, as in find_text_files. A folder gives all its files
// below of JSON lines and plain text by extension (.jsonl .ndjson .json .txt .text .md), packed
// (.gz, .zst) or not, and .parquet. A .json file must hold JSON lines. Throws IoError if a spec
// gives no file, or a file is neither text nor packed text. `key` is the command that names the
// files, for messages.
[[nodiscard]] std::vector<CorpusFile> find_corpus_files(const std::vector<std::string>& specs,
                                                        const std::string& key = "data");

}  // namespace sluice
