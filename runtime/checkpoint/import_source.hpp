// Checkpoints of other programs: the tensors they hold, and what they say of the run and the model.
//
//   DeepSpeed universal   zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt: weights and moments
//   Megatron              mp_rank_XX/model_optim_rng.pt: weights, a file for each tensor-parallel
//   rank
//
// Files are read as data (torch_file.hpp): nothing that they name is run. Errors are IoError and
// CheckpointError with file, tensor and byte, ConfigError for a model that is not built the same.
// For one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/import_layout.hpp"
#include "runtime/checkpoint/range_plan.hpp"
#include "runtime/checkpoint/torch_file.hpp"

namespace sluice {

// Where a run stood; what a checkpoint does not say is 0.
struct ImportProgress {
  std::int64_t step = 0;     // optimizer steps, skipped ones too
  std::int64_t updates = 0;  // Adam's count
  std::int64_t samples = 0;
};

// A tensor of an open file.
struct OpenTensor {
  std::shared_ptr<TorchFile> file;
  const PickleValue* value = nullptr;  // kTensor; lives with the file
  std::string name;
  bool unpadded = false;  // a vocabulary whose padding was taken off already
  [[nodiscard]] const std::vector<std::int64_t>& shape() const {
    return file->tensor(*value).shape;
  }
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

// The folder of a checkpoint, or one of checkpoints: then that which latest_universal or
// latest_checkpointed_iteration.txt names. nullptr: it is none of that format.
[[nodiscard]] std::unique_ptr<ImportSource> open_import(const std::string& dir,
                                                        ImportFormat format = ImportFormat::kAny);

[[nodiscard]] std::unique_ptr<ImportSource> open_deepspeed_universal(const std::string& dir);
[[nodiscard]] std::unique_ptr<ImportSource> open_megatron(const std::string& dir);

// An argparse.Namespace of Megatron's as a model. Throws ConfigError with a line for each setting
// that is not computed the same here. `file` is for messages.
[[nodiscard]] ModelOptions megatron_model(const PickleTree& tree, const PickleValue& args,
                                          const std::string& file);

}  // namespace sluice
