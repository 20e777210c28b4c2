// Writes a model as a Hugging Face folder: config.json, sharded safetensors, and their index.
//
// Reads parameters piece by piece. Only the transposed matrices of a gpt2 are in memory whole, one
// at a time. config.json is written last, because a folder without it is no model. Weights are
// rounded to nearest if the dtype is narrower than fp32; a weight that would become infinite is
// refused.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

class FileSystem;

// Reads elements [begin, begin + values.size()) of a parameter, row-major, in fp32.
using ParamReader =
    std::function<void(const ParamSpec& param, std::int64_t begin, std::span<float> values)>;

struct HfFile {
  std::string name;
  std::string text;
};

struct HfExportOptions {
  DType dtype = DType::kFloat32;
  std::int64_t shard_bytes = 5'000'000'000;  // bytes of tensors per file; a larger tensor is alone
  std::string carried_config{};              // text of the config.json that the model came from
  std::vector<std::string> companions{};     // source folders of copy_hf_companions(), in order
  std::vector<HfFile> changed{};             // written instead of companions of these names
  std::vector<HfFile> made{};                // written unless a companion has the name
  HfTokens tokens{};
};

struct HfExportResult {
  std::vector<std::string> files;  // names in the order of writing
  std::size_t companions = 0;      // number of these files that were copied or made
  std::int64_t bytes = 0;          // bytes of tensors
};

// torch's name of a dtype, as in config.json: "float32", "bfloat16", "float16".
[[nodiscard]] std::string_view torch_name(DType dtype);

// Creates `dir`; an existing `dir` must be empty. Throws ConfigError if config.json cannot describe
// the model or if the folder is not empty, and IoError. A failed export removes its files, so that
// it can be repeated.
HfExportResult export_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                         const ParamReader& read, const HfExportOptions& options);

// Copies the companion files of a model (tokenizer, generation_config.json, chat template) from
// `from` to `to`. Existing files stay. If `to` has a tokenizer file already, no tokenizer file is
// copied. Returns the names of the copied files.
std::vector<std::string> copy_hf_companions(FileSystem& files, const std::string& from,
                                            const std::string& to);

}  // namespace sluice
