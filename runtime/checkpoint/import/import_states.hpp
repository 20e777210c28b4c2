// Another program's checkpoint as one of ours.
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

// Rows of the tables, which say how large a model is where nothing else does.
struct ImportTables {
  std::int64_t vocab = 0;      // of all parts, padding included
  bool unpadded = false;       // there is none
  std::int64_t positions = 0;  // 0: no learned ones
};
// `hidden` tells a table's rows where it is stored flat.
[[nodiscard]] ImportTables import_tables(ImportSource& source, ModelType type, std::int64_t hidden);

// For one thread.
class ImportedStates {
 public:
  // Looks at every tensor by name and shape. Throws CheckpointError naming those that are missing,
  // those that the model does not have, one of another shape, or a tied head that is no copy of the
  // table. `source` outlives this.
  ImportedStates(ImportSource& source, const ModelSpec& spec, const ImportTables& tables);

  // Of every parameter both moments are there.
  [[nodiscard]] bool moments() const { return moments_; }
  // What is cut off or drawn, to be told once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // Elements [begin, begin + out.size()) of parameter number `param`, whole rows of it, in fp32.
  // Rows of a vocabulary that are not there: master weights are drawn by `seed`, moments are 0.
  void read(std::size_t param, StateKind kind, std::int64_t begin, std::span<float> out,
            std::uint64_t seed);

  // Commits a checkpoint of run.step to `dir`: one rank's file. Memory: a piece of a few MiB.
  // Returns its path.
  std::string commit(FileSystem& files, const std::string& dir, const RunState& run);

 private:
  struct Opened {
    OpenTensor tensor;
    std::int64_t cols = 0;
    bool flat = false;  // a matrix in one dimension
  };
  void find_names(ModelType type, bool tied);
  // A tied head's copy of the table, as a pipeline's last stage has one: weights and moments.
  [[nodiscard]] bool is_copy(int part, const std::string& head, const std::string& table) const;
  void check_shapes();
  static void check_rows(const ImportTensor& wanted, const OpenTensor& found);
  Opened& open(int part, const std::string& tensor, StateKind kind);
  static void copy(const ImportBlock& block, const Opened& from, std::int64_t row,
                   std::int64_t rows, std::int64_t cols, std::span<float> out);

  ImportSource& source_;
  ImportLayout layout_;
  std::map<std::pair<int, std::string>, std::string> in_file_;  // (part, canonical) -> its name
  std::vector<std::string> notes_;
  bool moments_ = true;
  // Of the parameter and kind that are read now, by (part, tensor).
  std::map<std::pair<int, std::string>, Opened> open_;
  StateKind open_kind_ = StateKind::kMaster;
};

}  // namespace sluice
