// Checkpoints of other programs: the tensors they hold, and what they say of the run and the model.
//
//   DeepSpeed universal   zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt: weights and moments
//   Megatron              mp_rank_TT[_PPP]/model_optim_rng.pt: a file for each tensor-parallel rank
//                         and pipeline stage; moments of an optimizer that is not distributed
//   Megatron torch_dist   .metadata, *.distcp, common.pt: weights, and moments saved by weight
//
// Files are read as data (torch_file.hpp): nothing that they name is run. Errors are IoError and
// CheckpointError with file, tensor and byte, ConfigError for a model that is not built the same.
// For one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/import/import_layout.hpp"
#include "runtime/checkpoint/import/import_tensor.hpp"
#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

// Where a run stood; what a checkpoint does not say is 0.
struct ImportProgress {
  std::int64_t step = 0;     // optimizer steps, skipped ones too
  std::int64_t updates = 0;  // Adam's count
  std::int64_t samples = 0;
  double learning_rate = 0;  // of the next update
  double loss_scale = 0;
  std::int64_t loss_scale_good_steps = 0, loss_scale_lives = 0;
};

class ImportSource {
 public:
  virtual ~ImportSource() = default;
  [[nodiscard]] virtual const std::string& path() const = 0;
  [[nodiscard]] virtual ImportNames names() const = 0;
  [[nodiscard]] virtual int parts() const { return 1; }
  // As they stand in the files, of one part.
  [[nodiscard]] virtual std::vector<std::string> tensors(int part) const = 0;
  [[nodiscard]] virtual bool has(int part, const std::string& tensor, StateKind kind) const = 0;
  [[nodiscard]] virtual OpenTensor open(int part, const std::string& tensor, StateKind kind) = 0;
  [[nodiscard]] virtual ImportProgress progress() const = 0;
  // The model, where the files say what was built; vocab is 0 where they give the padded one alone.
  [[nodiscard]] virtual std::optional<ModelOptions> model() const = 0;
  [[nodiscard]] virtual const char* program() const = 0;  // "DeepSpeed", "Megatron"
};

enum class ImportFormat { kAny, kDeepSpeed, kMegatron };

struct ImportWhat {
  ImportFormat format = ImportFormat::kAny;
  bool weights_only = false;  // an optimizer's states are not looked at
};

// The folder of a checkpoint, or one of checkpoints: then that which latest_universal or
// latest_checkpointed_iteration.txt names. nullptr: it is none of that format. Throws
// CheckpointError where an optimizer is there and its states cannot be told to be which
// parameter's: never are moments left out unsaid.
[[nodiscard]] std::unique_ptr<ImportSource> open_import(const std::string& dir,
                                                        const ImportWhat& what = {});

[[nodiscard]] std::unique_ptr<ImportSource> open_deepspeed_universal(const std::string& dir,
                                                                     bool weights_only = false);
[[nodiscard]] std::unique_ptr<ImportSource> open_megatron(const std::string& dir,
                                                          bool weights_only = false);
[[nodiscard]] std::unique_ptr<ImportSource> open_megatron_dist(const std::string& dir,
                                                               bool weights_only = false);

// An argparse.Namespace of Megatron's as a model. Throws ConfigError with a line for each setting
// that is not computed the same here. `file` is for messages.
[[nodiscard]] ModelOptions megatron_model(const PickleTree& tree, const PickleValue& args,
                                          const std::string& file);

}  // namespace sluice
