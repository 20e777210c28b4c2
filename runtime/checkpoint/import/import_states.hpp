// Converts a checkpoint of another program to a Sluice checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/import/import_source.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

// Rows of the tables. They give the model's sizes if the checkpoint does not.
struct ImportTables {
  std::int64_t vocab = 0;      // of all parts, including padding
  bool unpadded = false;       // the tables have no padding
  std::int64_t positions = 0;  // 0: no learned positions
};
// `hidden` gives the number of rows of a table that is stored flat.
[[nodiscard]] ImportTables import_tables(ImportSource& source, ModelType type, std::int64_t hidden);

// Not thread-safe.
class ImportedStates {
 public:
  // Checks every tensor by name and shape. Throws CheckpointError, which names missing tensors,
  // unknown tensors, a tensor of another shape, or a tied head that is no copy of the table.
  // `source` must outlive this object.
  ImportedStates(ImportSource& source, const ModelSpec& spec, const ImportTables& tables);

  // True if the checkpoint has both moments of every parameter.
  [[nodiscard]] bool moments() const { return moments_; }
  // Rows that are cut off or initialised, to be logged once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // Reads elements [begin, begin + out.size()) of parameter number `param` in fp32. REQUIRES: whole
  // rows. Missing rows of a vocabulary: master weights are initialised with `seed`, moments are 0.
  void read(std::size_t param, StateKind kind, std::int64_t begin, std::span<float> out,
            std::uint64_t seed);

  // Commits a checkpoint of run.step with one file to `dir` and returns its path. Needs a few MiB.
  std::string commit(FileSystem& files, const std::string& dir, const RunState& run);

 private:
  struct Opened {
    OpenTensor tensor;
    std::int64_t cols = 0;
    bool flat = false;  // a matrix that is stored with one dimension
  };
  void find_names(ModelType type, bool tied);
  // True if the head is a copy of the table, weights and moments. The last pipeline stage of a tied
  // model has such a copy.
  [[nodiscard]] bool is_copy(int part, const std::string& head, const std::string& table) const;
  void check_shapes();
  static void check_rows(const ImportTensor& wanted, const OpenTensor& found);
  Opened& open(int part, const std::string& tensor, StateKind kind);
  static void copy(const ImportBlock& block, const Opened& from, std::int64_t row,
                   std::int64_t rows, std::int64_t cols, std::span<float> out);

  ImportSource& source_;
  ImportLayout layout_;
  std::map<std::pair<int, std::string>, std::string> in_file_;  // (part, canonical) -> name in file
  std::vector<std::string> notes_;
  bool moments_ = true;
  // Open tensors of the current parameter and kind, by (part, tensor).
  std::map<std::pair<int, std::string>, Opened> open_;
  StateKind open_kind_ = StateKind::kMaster;
};

}  // namespace sluice
