// What `data clean` and `data dedupe` have in common. Only for this folder's sources.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/cli/commands.hpp"
#include "runtime/data/corpus/unit_plan.hpp"
#include "runtime/data/corpus/work_log.hpp"

namespace sluice {

// Finds the input files. Throws ConfigError without an input or an output folder, or if the output
// folder lies in a folder of the input.
[[nodiscard]] std::vector<CorpusFile> corpus_inputs(const CorpusCommand& command,
                                                    const std::string& name);

// Prints report.json, or a table: each name of `rows` and its share of the documents; names that
// end with '.' are prefixes.
void print_corpus_result(const CorpusCommand& command, const Counts& counts,
                         const std::vector<std::string>& rows,
                         std::chrono::steady_clock::time_point started);

}  // namespace sluice
