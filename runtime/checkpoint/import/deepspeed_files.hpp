// The files of a checkpoint as DeepSpeed saves it, and functions that the readers of ZeRO's shards
// and of universal checkpoints share. Only for the sources of this folder.
//
// clang-format off
//   mp_rank_00_model_states.pt                        ZeRO-1 and 2: counters, names, shapes
//   zero_pp_rank_R_mp_rank_00_model_states.pt         ZeRO-3: the same, for each rank R
//   [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt  rank R's part of the fp32 weights and moments
// clang-format on
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/import/import_source.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

struct DeepSpeedFiles {
  std::string dir;
  bool stage3 = false;
  std::vector<std::shared_ptr<TorchFile>> optimizers;  // by data-parallel rank
  std::vector<std::shared_ptr<TorchFile>> models;      // ZeRO-3: by rank; else one file

  [[nodiscard]] int world() const { return static_cast<int>(optimizers.size()); }
  // "optimizer_state_dict" of rank `rank`'s file.
  [[nodiscard]] const PickleValue& states(int rank) const;
};

// True if the folder holds a file that DeepSpeed names.
[[nodiscard]] bool has_deepspeed_files(const std::string& dir);
// Opens the files of all ranks. Throws CheckpointError for a missing file, for files of two saves,
// and for tensor parallelism, pipelines, experts, states on NVMe and checkpoints without ZeRO.
[[nodiscard]] DeepSpeedFiles open_deepspeed_files(const std::string& dir);

// The facts about the run in a *_model_states.pt.
struct DeepSpeedRun {
  ImportNames names = ImportNames::kHuggingFace;
  ImportProgress progress;
  std::optional<ModelOptions> model;  // of Megatron-DeepSpeed's arguments
};
// The naming scheme of the parameters.
[[nodiscard]] ImportNames deepspeed_names(const std::vector<std::string>& params);
[[nodiscard]] DeepSpeedRun read_deepspeed_run(const TorchFile& model_states, ImportNames names);

}  // namespace sluice
