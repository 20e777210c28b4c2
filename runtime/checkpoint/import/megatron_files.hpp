// The files of Megatron's legacy checkpoints, a folder for each tensor-parallel rank and pipeline
// stage: mp_rank_TT/model_optim_rng.pt, or mp_rank_TT_PPP/ where there is a pipeline. With virtual
// stages a file holds several chunks of the model, `model0`, `model1`, ...: chunk c of stage p is
// number c * stages + p from the embedding on. Layers are numbered from 0 in each chunk.
//
// Only for this folder's import sources. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

struct MegatronTensor {
  std::string in_file;  // "model1.decoder.layers.0.mlp.linear_fc1.weight"
  std::string name;     // of the whole model: its layer's number among all; without the chunk
  std::string canonical;
  // kTensor values of the file by StateKind; the master is the optimizer's where it has one.
  std::array<const PickleValue*, 3> states{};
};

struct MegatronFile {
  std::shared_ptr<TorchFile> file;
  int tensor_rank = 0, stage = 0;
  std::vector<std::vector<MegatronTensor>> chunks;  // in the order of the module's parameters
  std::vector<std::int64_t> layers;                 // of each chunk
};

// By tensor-parallel rank, then stage.
struct MegatronFiles {
  int tensor_ranks = 0, stages = 0;
  std::vector<MegatronFile> files;
  [[nodiscard]] const MegatronFile& at(int tensor_rank, int stage) const {
    const auto rank = static_cast<std::size_t>(tensor_rank);
    return files[rank * static_cast<std::size_t>(stages) + static_cast<std::size_t>(stage)];
  }
};

// Every file, with the weights' values. Throws CheckpointError where a folder is missing, files are
// of different runs or in another's place, or their layers do not add up.
[[nodiscard]] MegatronFiles open_megatron_files(const std::string& dir);

// What a file's optimizer says of the run; 0 where it does not.
struct MegatronProgress {
  bool moments = false;
  std::int64_t updates = -1;  // -1: not said
  double learning_rate = 0, loss_scale = 0;
  std::int64_t good_steps = 0, lives = 0;
};

// Puts the fp32 weights and both moments of every parameter of `file` to its tensors: parameters
// are numbered by group (those that decay, those that do not), each in the module's order. Counts,
// shapes, and the weights that the fp32 ones round to, have to agree. Throws CheckpointError naming
// the tensor; also where the optimizer's states are distributed over ranks or left out.
[[nodiscard]] MegatronProgress read_megatron_optimizer(MegatronFile& file);

}  // namespace sluice
