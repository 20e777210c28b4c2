#include "runtime/data/corpus/unit_run.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/corpus/ordered_map.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

// The finished bytes of one stage.
class Progress {
 public:
  Progress(const UnitRun& run, std::string stage) : run_(run), stage_(std::move(stage)) {
    for (const CorpusUnit& unit : run.units) all_bytes_ += unit.bytes;
  }
  void skip(std::int64_t bytes) { done_bytes_ += bytes; }
  void add(std::int64_t bytes) {
    if (!begun_) tell();
    begun_ = true;
    done_bytes_ += bytes;
    tell();
  }

 private:
  void tell() const {
    if (run_.progress) run_.progress(stage_, done_bytes_, all_bytes_);
  }

  const UnitRun& run_;
  std::string stage_;
  std::int64_t all_bytes_ = 0, done_bytes_ = 0;
  bool begun_ = false;
};

// The output files of one unit. A file is made at its first byte.
class UnitFiles {
 public:
  UnitFiles(const UnitRun& run, const UnitStage& stage, std::size_t unit) {
    for (const std::string& output : stage.outputs) {
      paths_.push_back(unit_file(run.folder, output, unit));
      AtomicFile::remove_leftovers(paths_.back());
    }
    files_.resize(paths_.size());
  }
  void append(const std::vector<std::string>& outputs) {
    check(outputs.size() == files_.size(), "a stage has other outputs than its name says");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].empty()) continue;
      if (!files_[i]) files_[i] = std::make_unique<AtomicFile>(paths_[i]);
      files_[i]->append(outputs[i]);
    }
  }
  void commit() {
    for (const auto& file : files_) {
      failpoint("corpus.commit");
      if (file) file->commit();
    }
  }

 private:
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<AtomicFile>> files_;
};

Counts run_unit(const UnitRun& run, const UnitStage& stage, std::size_t unit, const BatchWork& work,
                Progress& progress) {
  Counts counts;
  UnitReader reader(run.files, run.units[unit], run.read);
  UnitFiles files(run, stage, unit);
  ordered_map<RecordBatch, BatchResult>(
      run.threads, [&] { return reader.next(); },
      [&](const RecordBatch& batch) {
        BatchResult result = work(unit, batch);
        result.input_bytes = batch.input_bytes;
        return result;
      },
      [&](const BatchResult& result) {
        failpoint("corpus.batch");
        files.append(result.outputs);
        add_counts(counts, result.counts);
        counts["bytes"] += result.input_bytes;
        progress.add(result.input_bytes);
      });
  files.commit();
  return counts;
}

std::string base_of(const std::string& output) { return output.substr(0, output.rfind('.')); }

}  // namespace

std::string unit_file(const std::string& folder, const std::string& output, std::size_t unit) {
  std::array<char, 24> number{};
  std::snprintf(number.data(), number.size(), "%06zu", unit);
  return folder + "/" + base_of(output) + "/" + number.data() +
         output.substr(base_of(output).size());
}

void write_report(const std::string& folder, const Counts& counts) {
  std::string text = "{";
  for (const auto& [name, count] : counts) {
    text += (text.size() == 1 ? "\n  \"" : ",\n  \"") + name + "\": " + std::to_string(count);
  }
  write_file_atomically(folder + "/report.json", text + "\n}\n");
}

std::string fingerprint_of(const UnitRun& run, std::int64_t unit_bytes) {
  Hasher hasher;
  hasher.add(unit_bytes);
  for (const CorpusFile& file : run.files) add_identity(hasher, file.file);
  return hasher.digest_hex();
}

Counts run_stage(const UnitRun& run, const UnitStage& stage, const BatchWork& work, WorkLog& log) {
  Counts all;
  Progress progress(run, stage.name);
  for (const std::string& output : stage.outputs) {
    make_folder(run.folder + "/" + base_of(output));
  }
  for (std::size_t unit = 0; unit < run.units.size(); ++unit) {
    const auto number = static_cast<std::int64_t>(unit);
    if (const Counts* finished = log.find(stage.name, number)) {
      progress.skip(run.units[unit].bytes);
      add_counts(all, *finished);
      continue;
    }
    const Counts counts = run_unit(run, stage, unit, work, progress);
    log.finish(stage.name, number, counts);
    add_counts(all, counts);
  }
  return all;
}

}  // namespace sluice
