// DeepSpeed's checkpoints as it saves them: every rank's shards of ZeRO-1, 2 and 3.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/import/deepspeed_shards.hpp"
#include "runtime/checkpoint/import/import_files.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

class ZeroShards final : public ImportSource {
 public:
  ZeroShards(const std::string& dir, bool weights_only)
      : files_(open_deepspeed_files(dir)),
        shards_(files_, weights_only,
                read_deepspeed_run(model_file(0), ImportNames{}).progress.updates) {
    run_ = read_deepspeed_run(model_file(0), deepspeed_names(shards_.names()));
    if (shards_.updates() >= 0) run_.progress.updates = shards_.updates();
    run_.progress.step = std::max(run_.progress.step, run_.progress.updates);
    check_models();
    read_frozen();
    read_shared();
    if (shards_.moments()) read_optimizer();
  }

  const std::string& path() const override { return files_.dir; }
  ImportNames names() const override { return run_.names; }
  const char* program() const override { return "DeepSpeed"; }
  std::vector<std::string> tensors(int) const override {
    std::vector<std::string> names = shards_.names();
    for (const auto& [name, value] : frozen_) names.push_back(name);
    for (const auto& [name, holder] : shared_) names.push_back(name);
    return names;
  }
  bool has(int, const std::string& tensor, StateKind kind) const override {
    const std::string& name = holder_of(tensor);
    if (kind == StateKind::kMaster) return shards_.has(name) || frozen_.contains(name);
    return shards_.has(name) && shards_.moments();
  }
  OpenTensor open(int, const std::string& tensor, StateKind kind) override {
    const std::string& name = holder_of(tensor);
    if (shards_.has(name)) return shards_.open(name, kind);
    const PickleValue& value = *frozen_.at(name);
    if (!files_.stage3) return {name, files_.models[0], value};
    return open_frozen_shards(name, pickled_shape(model_file(0), value, name));
  }
  ImportProgress progress() const override { return run_.progress; }
  std::optional<ModelOptions> model() const override { return run_.model; }

 private:
  [[nodiscard]] const TorchFile& model_file(int rank) const { return *nth(files_.models, rank); }
  [[nodiscard]] const std::string& holder_of(const std::string& tensor) const {
    const auto found = shared_.find(tensor);
    return found == shared_.end() ? tensor : found->second;
  }

  // Every rank of ZeRO-3 has counters.
  void check_models() const {
    for (std::size_t rank = 1; rank < files_.models.size(); ++rank) {
      const TorchFile& file = *files_.models[rank];
      const std::int64_t step = whole_number(file.tree(), file.root(), "global_steps");
      const std::int64_t first =
          whole_number(model_file(0).tree(), model_file(0).root(), "global_steps");
      if (step == first) continue;
      throw CheckpointError(format_text("is of step {}, and {} of step {}: two saves are mixed",
                                        step, model_file(0).path(), first),
                            file.path(), "global_steps", file.root().at);
    }
  }

  // Parameters that were not trained. ZeRO-3 cuts them, too. Before stage 3 the module has them
  // whole, among the others and buffers.
  void read_frozen() {
    const PickleTree& tree = model_file(0).tree();
    const PickleValue* const shapes = tree.find(model_file(0).root(), "frozen_param_shapes");
    if (files_.stage3) {
      if (shapes != nullptr) frozen_ = tree.entries(*shapes);
      return;
    }
    const PickleValue* const shared = tree.find(model_file(0).root(), "shared_params");
    const PickleValue* const module = tree.find(model_file(0).root(), "module");
    if (shared == nullptr || module == nullptr) return;  // older versions: who shares is not known
    std::set<std::string> others;
    for (const auto& [name, holder] : tree.entries(*shared)) others.insert(name);
    if (const PickleValue* const buffers = tree.find(model_file(0).root(), "buffer_names")) {
      for (const PickleId id : buffers->items) others.insert(tree.at(id).text);
    }
    for (const auto& [name, value] : tree.entries(*module)) {
      const bool other = others.contains(name) || shards_.has(name);
      if (value->kind == Kind::kTensor && !other) frozen_.emplace(name, value);
    }
  }
  // Names of parameters that other names hold, as of a tied head.
  void read_shared() {
    const PickleTree& tree = model_file(0).tree();
    const PickleValue* const shared = tree.find(model_file(0).root(), "shared_params");
    if (shared == nullptr) return;
    for (const auto& [name, holder] : tree.entries(*shared)) {
      const bool held = shards_.has(holder->text) || frozen_.contains(holder->text);
      if (held && !shards_.has(name) && !frozen_.contains(name)) shared_[name] = holder->text;
    }
  }

  [[nodiscard]] OpenTensor open_frozen_shards(const std::string& name,
                                              std::vector<std::int64_t> shape) const {
    const std::int64_t elems = element_count(shape);
    const std::int64_t each = stage3_part(elems, files_.world());
    std::vector<TensorRun> runs;
    for (int rank = 0; rank * each < elems; ++rank) {
      const TorchFile& file = model_file(rank);
      const PickleValue* const all = file.tree().find(file.root(), "frozen_param_fragments");
      const PickleValue* const part = all == nullptr ? nullptr : file.tree().find(*all, name);
      const std::int64_t own = std::min(each, elems - rank * each);
      const bool tensor = part != nullptr && part->kind == Kind::kTensor;
      if (!tensor || file.tensor(*part).shape.size() != 1 || file.tensor(*part).shape[0] < own) {
        throw CheckpointError(
            format_text("holds no {} elements in frozen_param_fragments for rank {}", own, rank),
            file.path(), name, part == nullptr ? file.root().at : part->at);
      }
      runs.push_back({nth(files_.models, rank), part, 0, own});
    }
    return {name, std::move(shape), runs};
  }

  // The learning rate of the next update, and the loss scale of fp16.
  void read_optimizer() {
    const PickleTree& tree = files_.optimizers[0]->tree();
    const PickleValue& states = files_.states(0);
    const PickleValue* const base =
        tree.find(states, files_.stage3 ? "optimizer_state_dict" : "base_optimizer_state");
    const PickleValue* const groups = base == nullptr ? nullptr : tree.find(*base, "param_groups");
    if (groups != nullptr && !groups->items.empty()) {
      const PickleValue* const rate = tree.find(tree.at(groups->items[0]), "lr");
      if (rate != nullptr && rate->kind == Kind::kFloat) run_.progress.learning_rate = rate->real;
    }
    const PickleValue* const dynamic = tree.find(states, "dynamic_loss_scale");
    const PickleValue* const scaler = tree.find(states, "loss_scaler");
    if (dynamic == nullptr || dynamic->number == 0 || scaler == nullptr) return;
    const PickleValue* const scale = tree.find(*scaler, "cur_scale");
    if (scale == nullptr) return;
    ImportProgress& at = run_.progress;
    at.loss_scale = scale->kind == Kind::kInt ? static_cast<double>(scale->number) : scale->real;
    if (!std::isfinite(at.loss_scale)) at.loss_scale = 0;
    at.loss_scale_lives = whole_number(tree, *scaler, "cur_hysteresis");
    // DeepSpeed doubles the scale at good step k * window + 1 after an overflow, with k > 0.
    const PickleValue* const overflow = tree.find(*scaler, "last_overflow_iter");
    const std::int64_t window = whole_number(tree, *scaler, "scale_window");
    const std::int64_t last =
        overflow == nullptr ? -1 : std::max<std::int64_t>(-1, overflow->number);
    const std::int64_t good = whole_number(tree, *scaler, "cur_iter") - last - 1;
    if (window > 0 && good > 0) at.loss_scale_good_steps = (good - 1) % window;
  }

  DeepSpeedFiles files_;
  DeepSpeedShards shards_;
  DeepSpeedRun run_;
  std::map<std::string, const PickleValue*> frozen_;  // ZeRO-3: shape; else the tensor
  std::map<std::string, std::string> shared_;         // name -> name of the parameter that it is
};

}  // namespace

std::unique_ptr<ImportSource> open_deepspeed_zero(const std::string& dir, bool weights_only) {
  return std::make_unique<ZeroShards>(dir, weights_only);
}

}  // namespace sluice
