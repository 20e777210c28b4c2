// Checkpoints of other programs: their tensors, the run's progress and the model.
//
// clang-format off
//   DeepSpeed             *_model_states.pt, *_optim_states.pt: ZeRO's shards of every rank
//   DeepSpeed universal   zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt: weights and moments
//   Megatron              mp_rank_TT[_PPP]/model_optim_rng.pt: a file for each tensor-parallel rank
//                         and pipeline stage; moments of an optimizer that is not distributed
//   Megatron torch_dist   .metadata, *.distcp, common.pt: weights, and moments saved by weight
// clang-format on
//
// Files are read as data (torch_file.hpp): no code that a file names is run. Errors are IoError and
// CheckpointError with file, tensor and byte, and ConfigError for a model that Sluice would compute
// differently. One thread at a time.
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

// The progress of the run that saved. Values that the checkpoint does not contain are 0.
struct ImportProgress {
  std::int64_t step = 0;     // optimizer steps, including skipped steps
  std::int64_t updates = 0;  // Adam's update count
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
  // Names of the tensors of one part, as in the files.
  [[nodiscard]] virtual std::vector<std::string> tensors(int part) const = 0;
  [[nodiscard]] virtual bool has(int part, const std::string& tensor, StateKind kind) const = 0;
  [[nodiscard]] virtual OpenTensor open(int part, const std::string& tensor, StateKind kind) = 0;
  [[nodiscard]] virtual ImportProgress progress() const = 0;
  // The model, if the files describe it. vocab is 0 if the files give only the padded vocabulary.
  [[nodiscard]] virtual std::optional<ModelOptions> model() const = 0;
  [[nodiscard]] virtual const char* program() const = 0;  // "DeepSpeed", "Megatron"
};

enum class ImportFormat { kAny, kDeepSpeed, kMegatron };

struct ImportWhat {
  ImportFormat format = ImportFormat::kAny;
  bool weights_only = false;  // ignore the optimizer's states
};

// `dir`: the folder of a checkpoint, or a folder of checkpoints, from which latest_universal,
// latest or latest_checkpointed_iteration.txt names one. Returns nullptr if `dir` has another
// format. Throws CheckpointError if an optimizer exists but its states cannot be matched to
// parameters: moments are never dropped silently.
[[nodiscard]] std::unique_ptr<ImportSource> open_import(const std::string& dir,
                                                        const ImportWhat& what = {});

[[nodiscard]] std::unique_ptr<ImportSource> open_deepspeed_universal(const std::string& dir,
                                                                     bool weights_only = false);
[[nodiscard]] std::unique_ptr<ImportSource> open_deepspeed_zero(const std::string& dir,
                                                                bool weights_only = false);
[[nodiscard]] std::unique_ptr<ImportSource> open_megatron(const std::string& dir,
                                                          bool weights_only = false);
[[nodiscard]] std::unique_ptr<ImportSource> open_megatron_dist(const std::string& dir,
                                                               bool weights_only = false);

// The model of Megatron's arguments (an argparse.Namespace). Throws ConfigError with one line per
// setting that Sluice would compute differently. `file` is for messages.
[[nodiscard]] ModelOptions megatron_model(const PickleTree& tree, const PickleValue& args,
                                          const std::string& file);

}  // namespace sluice
