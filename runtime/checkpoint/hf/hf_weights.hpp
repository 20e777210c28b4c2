// The weights of a Hugging Face folder: model.safetensors, or the files that
// model.safetensors.index.json names. Mapped, so that reading a range touches that range's pages
// and no others: each rank reads its own share.
//
// The files must hold the model's tensors and nothing else but buffers: a tensor that is missing,
// that nobody asked for, or that has another shape is a CheckpointError with file and tensor.
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

// The folder's safetensors files, by path; by tensor name where an index says so.
struct HfFiles {
  std::vector<std::string> paths;
  std::string index;                              // its path; empty: one file, no index
  std::map<std::string, std::string> weight_map;  // tensor -> path
};
[[nodiscard]] HfFiles find_hf_files(const std::string& dir);
// The index's text; names of files lead to `dir`.
[[nodiscard]] HfFiles parse_hf_index(const std::string& dir, const std::string& path,
                                     std::string_view text);
// The index of a folder: which file each tensor is in, and the bytes of all.
[[nodiscard]] std::string write_hf_index(const std::map<std::string, std::string>& weight_map,
                                         std::int64_t total_bytes);

class HfWeights {
 public:
  // `file`: what config.json says. `spec`: of the model to fill, which may have more vocabulary
  // than the file, and of a gpt2 fewer positions.
  HfWeights(const std::string& dir, const ModelOptions& file, const ModelSpec& spec);

  // Elements [begin, begin + out.size()) of our parameter, in fp32. Returns how many, from the
  // front, the files have: an extended vocabulary has more, which stay as they are.
  std::int64_t read(const std::string& param, std::int64_t begin, std::span<float> out) const;

  // Where a tied model's files hold the head a second time: that it is the table, bit for bit.
  // Throws CheckpointError. Reads both.
  void check_tied() const;

  [[nodiscard]] const std::vector<HfPlacement>& placements() const { return placements_; }
  // What the files lack or have too much of, to be told once: "12 rows of ... are drawn". Empty: no
  // difference.
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
    std::int64_t rows = 0;  // of those stored, from the front, that are weights
  };
  void collect(const HfFiles& files, ModelType type);
  void match(const std::string& dir, const ModelOptions& file, const ModelSpec& spec);
  void check_rows(const HfPlacement& placement, const Stored& stored, const ModelOptions& file);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Stored> stored_;  // by canonical name, buffers left out
  std::vector<HfPlacement> placements_;
  std::map<std::string, Source> sources_;  // by our name
  std::vector<std::string> notes_;
  std::string table_;
  DType dtype_ = DType::kFloat32;
  bool tied_ = false;
};

}  // namespace sluice
