// Megatron's checkpoints of one file a rank: mp_rank_XX/model_optim_rng.pt.
#include <algorithm>
#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/checkpoint/file_system.hpp"
#include "runtime/checkpoint/import_files.hpp"
#include "runtime/checkpoint/import_source.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr char kFile[] = "model_optim_rng.pt";
constexpr double kFirstStacked = 2.0;  // earlier ones stack q, k and v in another order
constexpr int kMostDepth = 8;          // of the dictionaries that tensors are in

class Megatron final : public ImportSource {
 public:
  explicit Megatron(std::string dir) : dir_(std::move(dir)) {
    const std::vector<std::string> names = rank_folders();
    for (const std::string& name : names) {
      const std::string path = join_path(join_path(dir_, name), kFile);
      parts_.push_back({std::make_shared<TorchFile>(path), {}});
      Part& part = parts_.back();
      const PickleValue* const model = part.file->tree().find(part.file->root(), "model");
      if (model == nullptr) {
        const bool virtual_stages = part.file->tree().find(part.file->root(), "model0") != nullptr;
        throw CheckpointError(virtual_stages
                                  ? "is of a pipeline with virtual stages, which is not read"
                                  : "holds no `model`",
                              path, "", part.file->root().at);
      }
      collect(part, *model, "", 0);
    }
    check_version();
  }

  const std::string& path() const override { return dir_; }
  ImportNames names() const override { return ImportNames::kMegatron; }
  const char* program() const override { return "Megatron"; }
  int parts() const override { return static_cast<int>(parts_.size()); }
  std::vector<std::string> tensors(int part) const override {
    std::vector<std::string> found;
    for (const auto& [name, value] : of(part).tensors) found.push_back(name);
    return found;
  }
  bool has(int part, const std::string& tensor, StateKind kind) const override {
    return kind == StateKind::kMaster && of(part).tensors.contains(tensor);
  }
  OpenTensor open(int part, const std::string& tensor, StateKind) override {
    return {of(part).file, of(part).tensors.at(tensor), tensor, false};
  }
  ImportProgress progress() const override {
    const PickleTree& tree = of(0).file->tree();
    ImportProgress at;
    at.step = whole_number(tree, of(0).file->root(), "iteration");
    at.updates = at.step;
    if (const PickleValue* const args = tree.find(of(0).file->root(), "args")) {
      at.samples = whole_number(tree, *args, "consumed_train_samples");
    }
    return at;
  }
  std::optional<ModelOptions> model() const override {
    const PickleTree& tree = of(0).file->tree();
    const PickleValue* const args = tree.find(of(0).file->root(), "args");
    if (args == nullptr) return std::nullopt;
    return megatron_model(tree, *args, of(0).file->path());
  }

 private:
  struct Part {
    std::shared_ptr<TorchFile> file;
    std::map<std::string, const PickleValue*> tensors;
  };
  [[nodiscard]] const Part& of(int part) const { return parts_[static_cast<std::size_t>(part)]; }

  [[nodiscard]] std::vector<std::string> rank_folders() const {
    std::vector<std::string> found;
    for (const std::string& name : local_file_system().list(dir_)) {
      if (!name.starts_with("mp_rank_")) continue;
      const std::string number = name.substr(8);
      if (number != two_digits(found.size())) {
        throw CheckpointError(number.find('_') != std::string::npos
                                  ? "is of a pipeline; convert it to one stage with Megatron first"
                                  : "is not the folder of the next tensor-parallel rank: " +
                                        two_digits(found.size()) + " is missing",
                              join_path(dir_, name));
      }
      found.push_back(name);
    }
    return found;
  }
  static std::string two_digits(std::size_t n) { return (n < 10 ? "0" : "") + std::to_string(n); }
  void collect(Part& part, const PickleValue& in, const std::string& prefix, int depth) {
    if (depth > kMostDepth) {
      throw CheckpointError("nests its model too deep", part.file->path(), prefix, in.at);
    }
    for (const auto& [key, value] : part.file->tree().entries(in)) {
      const std::string name = prefix.empty() ? key : prefix + "." + key;
      if (value->kind == Kind::kDict) collect(part, *value, name, depth + 1);
      if (value->kind == Kind::kTensor) part.tensors.emplace(name, value);
      // What is no tensor is no weight; a weight that is missing is found missing.
    }
  }
  void check_version() const {
    const PickleTree& tree = of(0).file->tree();
    const PickleValue* const version = tree.find(of(0).file->root(), "checkpoint_version");
    const double given = version == nullptr              ? 0
                         : version->kind == Kind::kFloat ? version->real
                                                         : static_cast<double>(version->number);
    if (given >= kFirstStacked) return;
    throw CheckpointError(
        "checkpoint_version is " + (version == nullptr ? "not there" : std::to_string(given)) +
            "; 2.0 and later are read, earlier ones order q, k and v in other ways",
        of(0).file->path(), "", of(0).file->root().at);
  }

  std::string dir_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<ImportSource> open_megatron(const std::string& dir) {
  return std::make_unique<Megatron>(dir);
}

}  // namespace sluice
