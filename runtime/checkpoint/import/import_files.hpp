// What the readers of other programs' checkpoints share. Only for this folder's import sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/checkpoint/import/pickle.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

// What an error ends with where weights could be had without what it names.
inline constexpr char kWeightsAlone[] = "; --weights-only takes the weights alone";

// A count under `key`, as an int or a float without a fraction; 0 where there is none.
[[nodiscard]] std::int64_t whole_number(const PickleTree& tree, const PickleValue& in,
                                        std::string_view key);
// Adam's count: a number, or a tensor of one. Throws CheckpointError where it is none.
[[nodiscard]] std::int64_t updates_of(TorchFile& file, const PickleValue& value);
// The first line of a small file; empty: there is none.
[[nodiscard]] std::string first_line(const std::string& path);
// "mp_rank_01", "mp_rank_01_002": Megatron's. DeepSpeed has files of such names and a suffix.
[[nodiscard]] bool is_rank_folder(const std::string& name);
[[nodiscard]] bool is_there(const std::string& path);

}  // namespace sluice
