// The files of Megatron's legacy checkpoints. Each tensor-parallel rank and pipeline stage has a
// folder: mp_rank_TT/model_optim_rng.pt, or mp_rank_TT_PPP/ with a pipeline. With virtual stages a
// file holds several chunks of the model, `model0`, `model1`, ...: chunk c of stage p is number
// c * stages + p, counted from the embedding. Layers are numbered from 0 in each chunk.
//
// Only for the sources of this folder. Not thread-safe.
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
  std::string name;     // name in the whole model: global layer number, without the chunk
  std::string canonical;
  // kTensor values by StateKind. The master weights are the optimizer's copy, if it has one.
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

// Opens every file and finds the weights. Throws CheckpointError if a folder is missing, if files
// belong to different runs or to another folder, or if the layer numbers have a gap.
[[nodiscard]] MegatronFiles open_megatron_files(const std::string& dir);

// The run's progress from the optimizer of a file. Missing values are 0.
struct MegatronProgress {
  bool moments = false;
  std::int64_t updates = -1;  // -1: missing
  double learning_rate = 0, loss_scale = 0;
  std::int64_t good_steps = 0, lives = 0;
};

// Adds the fp32 weights and both moments to the tensors of `file`. The optimizer numbers parameters
// by group (with and without weight decay), in each group in the order of the module. Counts and
// shapes must agree, and the fp32 weights must round to the model's weights. Throws
// CheckpointError, which names the tensor; also if the optimizer's states are distributed over
// ranks or missing.
[[nodiscard]] MegatronProgress read_megatron_optimizer(MegatronFile& file);

}  // namespace sluice
