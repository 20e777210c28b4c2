// A model written as a Hugging Face folder: config.json, safetensors in shards, their index.
//
// Parameters are read a piece at a time; only a gpt2's transposed matrices are in memory whole, one
// by one. config.json is written last: a folder without it is no model. Weights are rounded to
// nearest where the dtype is narrower than fp32; one that it would make infinite is refused.
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

// Elements [begin, begin + values.size()) of a parameter, row-major, in fp32.
using ParamReader =
    std::function<void(const ParamSpec& param, std::int64_t begin, std::span<float> values)>;

struct HfFile {
  std::string name;
  std::string text;
};

struct HfExportOptions {
  DType dtype = DType::kFloat32;
  std::int64_t shard_bytes = 5'000'000'000;  // of tensors in a file; a larger one has its own
  std::string carried_config{};              // text of the config.json the model came from
  std::vector<std::string> companions{};     // folders to take copy_hf_companions from, in order
  std::vector<HfFile> made{};                // written where no companion has the name
  HfTokens tokens{};
};

struct HfExportResult {
  std::vector<std::string> files;  // their names, in order of writing
  std::size_t companions = 0;      // of these, what was copied or made
  std::int64_t bytes = 0;          // of tensors
};

// "float32", "bfloat16", "float16": torch's name, as config.json has it.
[[nodiscard]] std::string_view torch_name(DType dtype);

// `dir` is made; where it is there it must be empty. Throws ConfigError where the family cannot say
// what the model is, or the folder is not empty; IoError. What a failed export had written is
// removed, so that it can be tried again.
HfExportResult export_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                         const ParamReader& read, const HfExportOptions& options);

// The files beside weights and config.json that a model is used with (tokenizer,
// generation_config.json, chat template), as far as `from` has them. What exists stays; where `to`
// has a file of a tokenizer, none of another's joins it. Returns the names copied.
std::vector<std::string> copy_hf_companions(FileSystem& files, const std::string& from,
                                            const std::string& to);

}  // namespace sluice
