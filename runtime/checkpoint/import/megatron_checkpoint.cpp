// Megatron's legacy checkpoints. Joins the pipeline stages to one model per tensor-parallel rank.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/import/import_source.hpp"
#include "runtime/checkpoint/import/megatron_files.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

class Megatron final : public ImportSource {
 public:
  Megatron(std::string dir, bool weights_only)
      : dir_(std::move(dir)), all_(open_megatron_files(dir_)) {
    if (!weights_only) read_optimizers();
    parts_.resize(static_cast<std::size_t>(all_.tensor_ranks));
    for (const MegatronFile& in : all_.files) {
      auto& part = nth(parts_, in.tensor_rank);
      for (const auto& chunk : in.chunks) {
        for (const MegatronTensor& tensor : chunk) {
          const auto [other, is_new] = part.emplace(tensor.name, Place{&in, &tensor});
          if (is_new) continue;
          throw CheckpointError("is in " + other->second.in->file->path() + " too", in.file->path(),
                                tensor.in_file, tensor.states[0]->at);
        }
      }
    }
  }

  const std::string& path() const override { return dir_; }
  ImportNames names() const override { return ImportNames::kMegatron; }
  const char* program() const override { return "Megatron"; }
  int parts() const override { return all_.tensor_ranks; }
  std::vector<std::string> tensors(int part) const override {
    std::vector<std::string> found;
    for (const auto& [name, place] : of(part)) found.push_back(name);
    return found;
  }
  bool has(int part, const std::string& tensor, StateKind kind) const override {
    const auto found = of(part).find(tensor);
    return found != of(part).end() && value_of(found->second, kind) != nullptr;
  }
  OpenTensor open(int part, const std::string& tensor, StateKind kind) override {
    const Place& place = of(part).at(tensor);
    return {place.tensor->in_file, place.in->file, *value_of(place, kind)};
  }
  ImportProgress progress() const override { return progress_of_run(); }
  std::optional<ModelOptions> model() const override {
    const TorchFile& file = *all_.files[0].file;
    const PickleValue* const args = file.tree().find(file.root(), "args");
    if (args == nullptr) return std::nullopt;
    return megatron_model(file.tree(), *args, file.path());
  }

 private:
  struct Place {
    const MegatronFile* in = nullptr;
    const MegatronTensor* tensor = nullptr;
  };
  using Part = std::map<std::string, Place>;
  [[nodiscard]] const Part& of(int part) const { return nth(parts_, part); }
  static const PickleValue* value_of(const Place& place, StateKind kind) {
    return place.tensor->states[kind == StateKind::kMaster    ? 0
                                : kind == StateKind::kMoment1 ? 1
                                                              : 2];
  }

  void read_optimizers() {
    for (MegatronFile& in : all_.files) {
      const std::string folder = parent_path(in.file->path());
      if (file_exists(join_path(folder, "distrib_optim.pt"))) {
        throw CheckpointError(
            std::string("is of the distributed optimizer, whose buffers are not read; load the "
                        "checkpoint in Megatron without --use-distributed-optimizer and "
                        "save it again") +
                kWeightsAlone,
            join_path(folder, "distrib_optim.pt"));
      }
      const MegatronProgress at = read_megatron_optimizer(in);
      if (&in == all_.files.data()) said_ = at;
      if (at.moments == said_.moments && at.updates == said_.updates) continue;
      throw CheckpointError("has " + text_of(at) + ", and " + all_.files[0].file->path() + " has " +
                                text_of(said_) + kWeightsAlone,
                            in.file->path(), "optimizer", in.file->root().at);
    }
  }
  static std::string text_of(const MegatronProgress& at) {
    if (!at.moments) return "no optimizer";
    return at.updates < 0 ? "one that does not count its updates"
                          : format_text("one of {} updates", at.updates);
  }

  [[nodiscard]] ImportProgress progress_of_run() const {
    const TorchFile& file = *all_.files[0].file;
    ImportProgress at;
    at.step = whole_number(file.tree(), file.root(), "iteration");
    at.updates = said_.updates >= 0 ? said_.updates : at.step;
    at.step = std::max(at.step, at.updates);
    if (const PickleValue* const args = file.tree().find(file.root(), "args")) {
      at.samples = whole_number(file.tree(), *args, "consumed_train_samples");
    }
    at.learning_rate = said_.learning_rate;
    at.loss_scale = said_.loss_scale;
    at.loss_scale_good_steps = said_.good_steps;
    at.loss_scale_lives = said_.lives;
    return at;
  }

  std::string dir_;
  MegatronFiles all_;
  std::vector<Part> parts_;  // by tensor-parallel rank
  MegatronProgress said_;    // progress in the first file
};

}  // namespace

std::unique_ptr<ImportSource> open_megatron(const std::string& dir, bool weights_only) {
  return std::make_unique<Megatron>(dir, weights_only);
}

}  // namespace sluice
