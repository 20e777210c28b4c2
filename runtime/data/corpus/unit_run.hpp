// Runs one stage of a corpus command over the units: reads records, works on batches in several
// threads, writes each unit's output files whole, notes the unit in the work log. Units that the
// log holds are left out, so a stage that was killed continues, and its output does not depend on
// threads or interruptions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/corpus/unit_reader.hpp"
#include "runtime/data/corpus/work_log.hpp"

namespace sluice {

// What a batch of records became: bytes for each output of the stage, and counts.
struct BatchResult {
  std::vector<std::string> outputs;
  Counts counts;
  std::int64_t input_bytes = 0;
};

struct UnitStage {
  std::string name;                  // in the work log
  std::vector<std::string> outputs;  // "kept.jsonl": kept/000000.jsonl, kept/000001.jsonl, ...
};

// Called on the caller's thread with the bytes that a stage has finished, of all its bytes. The
// first call of a stage counts the work of earlier processes.
using StageProgress =
    std::function<void(const std::string& stage, std::int64_t done, std::int64_t all)>;

struct UnitRun {
  std::string folder;
  std::vector<CorpusFile> files;
  std::vector<CorpusUnit> units;
  int threads = 1;
  UnitReadOptions read{};
  StageProgress progress{};
};

// Returns the counts of all units, "bytes" among them. work() is called in several threads. An
// output file without bytes is not written.
using BatchWork = std::function<BatchResult(std::size_t unit, const RecordBatch& batch)>;
Counts run_stage(const UnitRun& run, const UnitStage& stage, const BatchWork& work, WorkLog& log);

// FOLDER/kept/000012.jsonl of the output "kept.jsonl".
[[nodiscard]] std::string unit_file(const std::string& folder, const std::string& output,
                                    std::size_t unit);

// FOLDER/report.json: the counts, by name.
void write_report(const std::string& folder, const Counts& counts);

// Identity of the input: paths, sizes and times of the files.
[[nodiscard]] std::string fingerprint_of(const UnitRun& run, std::int64_t unit_bytes);

}  // namespace sluice
