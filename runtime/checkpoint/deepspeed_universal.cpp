// DeepSpeed's universal checkpoints: a folder a parameter, its states whole.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/checkpoint/file_system.hpp"
#include "runtime/checkpoint/import_files.hpp"
#include "runtime/checkpoint/import_source.hpp"

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
  explicit Universal(std::string dir) : dir_(std::move(dir)), zero_(join_path(dir_, "zero")) {
    for (const std::string& name : local_file_system().list(zero_)) {
      if (!is_there(join_path(join_path(zero_, name), file_of(StateKind::kMaster)))) continue;
      names_.push_back(name);
    }
    if (names_.empty()) {
      throw CheckpointError("holds no folder with fp32.pt: no universal checkpoint", zero_);
    }
    const auto of_megatron = [](const std::string& name) {
      return name.find("query_key_value") != std::string::npos ||
             name.find("linear_qkv") != std::string::npos;
    };
    megatron_ = std::any_of(names_.begin(), names_.end(), of_megatron);
    read_model_states();
    read_step();
  }

  const std::string& path() const override { return dir_; }
  ImportNames names() const override {
    return megatron_ ? ImportNames::kMegatron : ImportNames::kHuggingFace;
  }
  const char* program() const override { return "DeepSpeed"; }
  std::vector<std::string> tensors(int) const override { return names_; }
  bool has(int, const std::string& tensor, StateKind kind) const override {
    return is_there(join_path(join_path(zero_, tensor), file_of(kind)));
  }
  OpenTensor open(int, const std::string& tensor, StateKind kind) override {
    const std::string path = join_path(join_path(zero_, tensor), file_of(kind));
    auto file = std::make_shared<TorchFile>(path);
    // {param: tensor, ...} of stages 1 and 2, the bare tensor of stage 3.
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
    return {file, value, tensor, unpadded};
  }
  ImportProgress progress() const override { return progress_; }
  std::optional<ModelOptions> model() const override { return model_; }

 private:
  // What tells how DeepSpeed would cut a tensor is of no use here, but for experts.
  static void refuse_stacks(const TorchFile& file) {
    const PickleValue* const expert = file.tree().find(file.root(), "is_expert_param");
    if (expert == nullptr || expert->kind != Kind::kBool || expert->number == 0) return;
    throw CheckpointError("is of an expert, which is not built here", file.path(), "", expert->at);
  }
  // Counters, and the arguments where Megatron-DeepSpeed put them; any rank's file has both.
  void read_model_states() {
    for (const std::string& name : local_file_system().list(dir_)) {
      if (!name.ends_with("model_states.pt") || name.starts_with("layer_")) continue;
      const TorchFile file(join_path(dir_, name));
      progress_.step = whole_number(file.tree(), file.root(), "global_steps");
      progress_.samples = whole_number(file.tree(), file.root(), "global_samples");
      skipped_ = whole_number(file.tree(), file.root(), "skipped_steps");
      if (const PickleValue* const args = file.tree().find(file.root(), "args")) {
        if (megatron_) model_ = megatron_model(file.tree(), *args, file.path());
      }
      return;
    }
  }
  // Adam's count: a number or a tensor, beside each parameter or once for all.
  void read_step() {
    progress_.updates = std::max<std::int64_t>(0, progress_.step - skipped_);
    for (const std::string& name : names_) {
      const std::string path = join_path(join_path(zero_, name), "step.pt");
      if (!is_there(path)) continue;
      TorchFile file(path);
      progress_.updates = count_of(file, file.root());
      break;
    }
    progress_.step = std::max(progress_.step, progress_.updates);
  }
  static std::int64_t count_of(TorchFile& file, const PickleValue& value) {
    double count = value.kind == Kind::kInt ? static_cast<double>(value.number) : value.real;
    if (value.kind == Kind::kTensor && file.dtype(value, "step") == DType::kFloat32) {
      file.check_storage(value, "step");
      float number = 0;
      file.read_scalar(value, number);
      count = number;
    }
    constexpr double kMost = 1e15;
    if (!(count >= 0 && count <= kMost) || count != std::floor(count)) {
      throw CheckpointError("is no number of updates", file.path(), "step", value.at);
    }
    return static_cast<std::int64_t>(count);
  }

  std::string dir_, zero_;
  std::vector<std::string> names_;
  bool megatron_ = false;
  std::int64_t skipped_ = 0;
  ImportProgress progress_;
  std::optional<ModelOptions> model_;
};

// The first line of a small file; empty: there is none.
std::string first_line(const std::string& path) {
  if (!is_there(path)) return "";
  constexpr std::int64_t kMost = 4096;
  const std::string text = read_text(local_file_system(), path, kMost);
  return text.substr(0, text.find_first_of("\r\n"));
}

}  // namespace

bool is_there(const std::string& path) { return local_file_system().stat(path).has_value(); }

std::int64_t whole_number(const PickleTree& tree, const PickleValue& in, std::string_view key) {
  const PickleValue* const value = tree.find(in, key);
  if (value == nullptr) return 0;
  if (value->kind == Kind::kInt) return std::max<std::int64_t>(0, value->number);
  constexpr double kMost = 1e15;
  const bool counts = value->kind == Kind::kFloat && value->real >= 0 && value->real < kMost;
  return counts ? static_cast<std::int64_t>(value->real) : 0;
}

std::unique_ptr<ImportSource> open_deepspeed_universal(const std::string& dir) {
  return std::make_unique<Universal>(dir);
}

std::unique_ptr<ImportSource> open_import(const std::string& dir, ImportFormat format) {
  if (format != ImportFormat::kMegatron) {
    const std::string tag = first_line(join_path(dir, "latest_universal"));
    const std::string step = tag.empty() ? dir : join_path(dir, tag);
    if (is_there(join_path(step, "zero"))) return open_deepspeed_universal(step);
  }
  if (format != ImportFormat::kDeepSpeed) {
    const std::string iteration = first_line(join_path(dir, "latest_checkpointed_iteration.txt"));
    constexpr std::size_t kDigits = 7;
    const std::string zeros(kDigits - std::min(kDigits, iteration.size()), '0');
    const std::string step = iteration.empty()        ? dir
                             : iteration == "release" ? join_path(dir, iteration)
                                                      : join_path(dir, "iter_" + zeros + iteration);
    if (is_there(join_path(step, "mp_rank_00"))) return open_megatron(step);
  }
  return nullptr;
}

}  // namespace sluice
