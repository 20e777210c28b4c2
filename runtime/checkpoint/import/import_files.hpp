// Shared by the readers of other programs' checkpoints. Only for the sources of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/checkpoint/import/pickle.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

// The remedy in errors about optimizer states: the weights alone can still be imported.
inline constexpr char kWeightsAlone[] = "; --weights-only takes the weights alone";

// The count under `key`, stored as an int or as a float without a fraction; 0 if missing.
[[nodiscard]] std::int64_t whole_number(const PickleTree& tree, const PickleValue& in,
                                        std::string_view key);
// Adam's update count: a number, or a tensor with one element. Throws CheckpointError otherwise.
[[nodiscard]] std::int64_t updates_of(TorchFile& file, const PickleValue& value);
// The first line of a small file; empty if there is no file.
[[nodiscard]] std::string first_line(const std::string& path);
// True for Megatron's folder names "mp_rank_01" and "mp_rank_01_002". DeepSpeed uses such names
// with a suffix for files.
[[nodiscard]] bool is_rank_folder(const std::string& name);
[[nodiscard]] bool file_exists(const std::string& path);

}  // namespace sluice
