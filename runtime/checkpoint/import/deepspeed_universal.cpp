// DeepSpeed's universal checkpoints: one folder per parameter, with its whole states.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/checkpoint/import/deepspeed_files.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/import/import_source.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

const char* file_of(StateKind kind) {
  return kind == StateKind::kMaster    ? "fp32.pt"
         : kind == StateKind::kMoment1 ? "exp_avg.pt"
                                       : "exp_avg_sq.pt";
}

class Universal final : public ImportSource {
 public:
  Universal(std::string dir, bool weights_only)
      : dir_(std::move(dir)), zero_(join_path(dir_, "zero")), weights_only_(weights_only) {
    for (const std::string& name : local_file_system().list(zero_)) {
      if (!file_exists(join_path(join_path(zero_, name), file_of(StateKind::kMaster)))) continue;
      names_.push_back(name);
    }
    if (names_.empty()) {
      throw CheckpointError("holds no folder with fp32.pt: no universal checkpoint", zero_);
    }
    read_model_states();
    read_step();
  }

  const std::string& path() const override { return dir_; }
  ImportNames names() const override { return run_.names; }
  const char* program() const override { return "DeepSpeed"; }
  std::vector<std::string> tensors(int) const override { return names_; }
  bool has(int, const std::string& tensor, StateKind kind) const override {
    if (weights_only_ && kind != StateKind::kMaster) return false;
    return file_exists(join_path(join_path(zero_, tensor), file_of(kind)));
  }
  OpenTensor open(int, const std::string& tensor, StateKind kind) override {
    const std::string path = join_path(join_path(zero_, tensor), file_of(kind));
    auto file = std::make_shared<TorchFile>(path);
    // Stages 1 and 2 store {param: tensor, ...}; stage 3 stores the tensor itself.
    const PickleValue* value = &file->root();
    bool unpadded = false;
    if (value->kind == Kind::kDict) {
      const PickleValue* const vocabulary = file->tree().find(*value, "vocab_tensor");
      unpadded =
          vocabulary != nullptr && vocabulary->kind == Kind::kBool && vocabulary->number != 0;
      refuse_stacks(*file);
      value = file->tree().find(file->root(), "param");
    }
    if (value == nullptr || value->kind != Kind::kTensor) {
      throw CheckpointError("holds " + kind_text(value == nullptr ? file->root() : *value) +
                                " where a tensor is expected",
                            path, tensor, file->root().at);
    }
    OpenTensor found(tensor, file, *value);
    found.unpadded = unpadded;
    return found;
  }
  ImportProgress progress() const override { return run_.progress; }
  std::optional<ModelOptions> model() const override { return run_.model; }

 private:
  // Refuses expert parameters. The other entries say how DeepSpeed cuts a tensor and are not
  // needed.
  static void refuse_stacks(const TorchFile& file) {
    const PickleValue* const expert = file.tree().find(file.root(), "is_expert_param");
    if (expert == nullptr || expert->kind != Kind::kBool || expert->number == 0) return;
    throw CheckpointError("belongs to an expert; Sluice has no experts", file.path(), "",
                          expert->at);
  }
  // The file of any rank has counters and arguments.
  void read_model_states() {
    run_.names = deepspeed_names(names_);
    for (const std::string& name : local_file_system().list(dir_)) {
      if (!name.ends_with("model_states.pt") || name.starts_with("layer_")) continue;
      run_ = read_deepspeed_run(TorchFile(join_path(dir_, name)), run_.names);
      return;
    }
  }
  // Reads Adam's update count: a number or a tensor, per parameter or once for all.
  void read_step() {
    for (const std::string& name : names_) {
      const std::string path = join_path(join_path(zero_, name), "step.pt");
      if (!file_exists(path)) continue;
      TorchFile file(path);
      run_.progress.updates = updates_of(file, file.root());
      break;
    }
    run_.progress.step = std::max(run_.progress.step, run_.progress.updates);
  }

  std::string dir_, zero_;
  std::vector<std::string> names_;
  bool weights_only_ = false;
  DeepSpeedRun run_;
};

}  // namespace

std::unique_ptr<ImportSource> open_deepspeed_universal(const std::string& dir, bool weights_only) {
  return std::make_unique<Universal>(dir, weights_only);
}

}  // namespace sluice
