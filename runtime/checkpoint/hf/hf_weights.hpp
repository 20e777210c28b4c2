// The weights of a Hugging Face folder: model.safetensors, or the files that
// model.safetensors.index.json names. The files are mapped. Reading a range touches only its pages,
// so each rank reads only its own part.
//
// The files must contain exactly the model's tensors, and may contain buffers. A missing tensor, an
// unknown tensor, and a tensor of another shape are a CheckpointError with file and tensor.
// Thread-safe after construction.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.hpp"
#include "runtime/checkpoint/hf/hf_names.hpp"

namespace sluice {

// The safetensors files of a folder, and the file of each tensor if there is an index.
struct HfFiles {
  std::vector<std::string> paths;
  std::string index;                              // path of the index; empty: one file, no index
  std::map<std::string, std::string> weight_map;  // tensor -> path
};
[[nodiscard]] HfFiles find_hf_files(const std::string& dir);
// Parses the text of an index. File names are relative to `dir`.
[[nodiscard]] HfFiles parse_hf_index(const std::string& dir, const std::string& path,
                                     std::string_view text);
// The text of an index: the file of each tensor, and the bytes of all tensors.
[[nodiscard]] std::string write_hf_index(const std::map<std::string, std::string>& weight_map,
                                         std::int64_t total_bytes);

class HfWeights {
 public:
  // `file`: the options of config.json. `spec`: the model that receives the weights. It may have
  // more vocabulary rows than the file, and a gpt2 may have fewer positions.
  HfWeights(const std::string& dir, const ModelOptions& file, const ModelSpec& spec);

  // Reads elements [begin, begin + out.size()) of a parameter in fp32. Returns the number of
  // leading elements that the files have. The rest, rows of an extended vocabulary, is not changed.
  std::int64_t read(const std::string& param, std::int64_t begin, std::span<float> out) const;

  // If the files of a tied model contain a copy of the head, compares it with the table bit by bit.
  // Throws CheckpointError if they differ. Reads both tensors.
  void check_tied() const;

  [[nodiscard]] const std::vector<HfPlacement>& placements() const { return placements_; }
  // Differences in rows between files and model, to be logged once: "12 rows of ... are drawn".
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] DType dtype() const { return dtype_; }  // of the first weight

 private:
  struct Stored {
    const SafetensorsFile* file = nullptr;
    TensorEntry entry;
    DType dtype = DType::kFloat32;
  };
  struct Source {
    HfPlacement placement;
    Stored stored;
    std::int64_t rows = 0;  // leading stored rows that are weights, not padding
  };
  void collect(const HfFiles& files, ModelType type);
  void match(const std::string& dir, const ModelOptions& file, const ModelSpec& spec);
  void check_rows(const HfPlacement& placement, const Stored& stored, const ModelOptions& file);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Stored> stored_;  // by canonical name, without buffers
  std::vector<HfPlacement> placements_;
  std::map<std::string, Source> sources_;  // by Sluice's name
  std::vector<std::string> notes_;
  std::string table_;
  DType dtype_ = DType::kFloat32;
  bool tied_ = false;
};

}  // namespace sluice
