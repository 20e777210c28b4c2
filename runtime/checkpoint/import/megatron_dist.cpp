// Megatron's torch_dist checkpoints: tensors of the whole model, in the pieces that ranks wrote. A
// tensor of the blocks is either stacked by layer, [layers, ...], or has the layer number in its
// key. The pieces of all tensor-parallel ranks are joined to the tensors of one rank.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/posix/map.hpp"
#include "runtime/checkpoint/import/dist_metadata.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/import/import_source.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr char kMetadata[] = ".metadata";
constexpr char kCommon[] = "common.pt";
constexpr char kStatePrefix[] = "optimizer.state.";
constexpr std::string_view kLayers = "decoder.layers.";

class MegatronDist final : public ImportSource {
 public:
  MegatronDist(std::string dir, bool weights_only)
      : dir_(std::move(dir)), common_(join_path(dir_, kCommon)) {
    const MappedFile metadata(join_path(dir_, kMetadata));
    all_ = parse_dist_metadata(metadata.bytes(), metadata.path());
    for (const auto& [key, tensor] : all_) {
      if (key.starts_with("optimizer.") || key.starts_with("chained_")) {
        optimizer_ = true;
      } else {
        add_weight(key, tensor);
      }
    }
    if (optimizer_ && !weights_only) find_states();
    read_progress();
  }

  const std::string& path() const override { return dir_; }
  ImportNames names() const override { return ImportNames::kMegatron; }
  const char* program() const override { return "Megatron"; }
  std::vector<std::string> tensors(int) const override {
    std::vector<std::string> found;
    for (const auto& [name, place] : places_) found.push_back(name);
    return found;
  }
  bool has(int, const std::string& tensor, StateKind kind) const override {
    const auto found = places_.find(tensor);
    return found != places_.end() && !key_of(found->second, kind).empty();
  }
  OpenTensor open(int, const std::string& tensor, StateKind kind) override {
    const Place& place = places_.at(tensor);
    return put_together(key_of(place, kind), place.layer);
  }
  ImportProgress progress() const override { return progress_; }
  std::optional<ModelOptions> model() const override {
    const PickleValue* const args = common_.tree().find(common_.root(), "args");
    if (args == nullptr) return std::nullopt;
    return megatron_model(common_.tree(), *args, common_.path());
  }

 private:
  struct Place {
    std::array<std::string, 3> keys;  // keys in the metadata, by state kind
    std::int64_t layer = -1;          // index in a stack of layers; -1: no stack
  };
  static const std::string& key_of(const Place& place, StateKind kind) {
    return place.keys[kind == StateKind::kMaster ? 0 : kind == StateKind::kMoment1 ? 1 : 2];
  }

  void add_weight(const std::string& key, const DistTensor& tensor) {
    const bool in_block = key.starts_with(kLayers) && key.size() > kLayers.size();
    const char next = in_block ? key[kLayers.size()] : '0';
    if (next >= '0' && next <= '9') {
      places_.emplace(key, Place{{key, "", ""}, -1});
      return;
    }
    if (tensor.shape.empty()) return;
    constexpr std::int64_t kMostLayers = 1 << 16;
    if (tensor.shape[0] > kMostLayers) {
      throw CheckpointError(format_text("is stacked for {} layers", tensor.shape[0]),
                            join_path(dir_, kMetadata), key, tensor.at);
    }
    for (std::int64_t layer = 0; layer < tensor.shape[0]; ++layer) {
      const std::string name = format_text("{}{}.{}", kLayers, layer, key.substr(kLayers.size()));
      places_.emplace(name, Place{{key, "", ""}, layer});
    }
  }

  // Finds the optimizer's states, which have the keys and shapes of the weights. States that were
  // saved in the order of the optimizer's buffers do not.
  void find_states() {
    for (auto& [name, place] : places_) {
      const std::string weight = place.keys[0];
      if (weight.find("_extra_state") != std::string::npos) continue;
      const auto find = [&](const std::string& state) -> std::string {
        const auto found = all_.find(kStatePrefix + state + "." + weight);
        const bool fits = found != all_.end() && found->second.shape == all_.at(weight).shape;
        return fits ? found->first : "";
      };
      place.keys[1] = find("exp_avg");
      place.keys[2] = find("exp_avg_sq");
      if (place.keys[1].empty() || place.keys[2].empty()) {
        throw CheckpointError(
            std::string("has no moments under its own name and in its shape: the distributed "
                        "optimizer's buffers are not read; save again with "
                        "--dist-ckpt-optim-fully-reshardable") +
                kWeightsAlone,
            join_path(dir_, kMetadata), weight, all_.at(weight).at);
      }
      for (const char* const state : {"fp32_param", "param"}) {
        if (const std::string key = find(state); !key.empty()) place.keys[0] = key;
      }
    }
  }

  OpenTensor put_together(const std::string& key, std::int64_t layer) {
    const DistTensor& tensor = all_.at(key);
    const std::size_t first = layer < 0 ? 0 : 1;  // first dimension of the weight itself
    std::vector<std::int64_t> shape(tensor.shape.begin() + static_cast<std::ptrdiff_t>(first),
                                    tensor.shape.end());
    if (shape.empty() || shape.size() > 2) {
      throw CheckpointError(format_text("has {} dimensions; 1 or 2 are read", shape.size()),
                            join_path(dir_, kMetadata), key, tensor.at);
    }
    std::vector<TensorPiece> pieces;
    for (const DistChunk& chunk : tensor.chunks) {
      if (layer >= 0 && (layer < chunk.offsets[0] || layer >= chunk.offsets[0] + chunk.sizes[0])) {
        continue;
      }
      pieces.push_back(open_chunk(key, chunk));
      TensorPiece& piece = pieces.back();
      if (layer >= 0 && chunk.sizes[0] != 1) {
        throw CheckpointError("holds several layers in one piece, which is not read",
                              piece.file->path(), key, piece.value->at);
      }
      piece.col = chunk.offsets.back();
      if (shape.size() == 2) piece.row = chunk.offsets[first];
    }
    if (pieces.empty()) {
      throw CheckpointError(format_text("has no piece of layer {}", layer),
                            join_path(dir_, kMetadata), key, tensor.at);
    }
    return {layer < 0 ? key : format_text("{} (layer {})", key, layer), std::move(shape),
            std::move(pieces)};
  }
  TensorPiece open_chunk(const std::string& key, const DistChunk& chunk) {
    auto& map = maps_[chunk.file];
    if (map == nullptr) map = std::make_shared<const MappedFile>(join_path(dir_, chunk.file));
    auto file = std::make_shared<TorchFile>(map, chunk.offset, chunk.bytes);
    const PickleValue& value = file->root();
    if (value.kind != Kind::kTensor || file->tensor(value).shape != chunk.sizes) {
      throw CheckpointError(
          "is " + kind_text(value) + ", and the metadata says " + shape_text(chunk.sizes) +
              (value.kind == Kind::kTensor ? ", not " + shape_text(file->tensor(value).shape) : ""),
          file->path(), key, value.at);
    }
    return {std::move(file), &value, 0, 0};
  }

  void read_progress() {
    const PickleTree& tree = common_.tree();
    progress_.step = whole_number(tree, common_.root(), "iteration");
    progress_.updates = progress_.step;
    if (const PickleValue* const args = tree.find(common_.root(), "args")) {
      progress_.samples = whole_number(tree, *args, "consumed_train_samples");
    }
    const PickleValue* const optimizer = tree.find(common_.root(), "optimizer");
    if (optimizer == nullptr) return;
    const PickleValue* const wrapped = tree.find(*optimizer, "optimizer");
    const PickleValue& inner = wrapped == nullptr ? *optimizer : *wrapped;
    const PickleValue* const groups = tree.find(inner, "param_groups");
    if (groups != nullptr && groups->kind == Kind::kList) {
      for (const PickleId id : groups->items) {
        const PickleValue* const step = tree.find(tree.at(id), "step");
        if (step != nullptr) progress_.updates = updates_of(common_, *step);
        const PickleValue* const rate = tree.find(tree.at(id), "lr");
        if (rate != nullptr && rate->kind == Kind::kFloat) progress_.learning_rate = rate->real;
      }
    }
    const PickleValue* const state = tree.find(inner, "state");
    const PickleValue* const step = state == nullptr ? nullptr : tree.find(*state, "common_step");
    if (step != nullptr) progress_.updates = updates_of(common_, *step);
    progress_.step = std::max(progress_.step, progress_.updates);
  }

  std::string dir_;
  TorchFile common_;
  std::map<std::string, DistTensor> all_;
  std::map<std::string, Place> places_;  // by the name in the file of a single rank
  std::map<std::string, std::shared_ptr<const MappedFile>> maps_;
  bool optimizer_ = false;
  ImportProgress progress_;
};

}  // namespace

std::unique_ptr<ImportSource> open_megatron_dist(const std::string& dir, bool weights_only) {
  return std::make_unique<MegatronDist>(dir, weights_only);
}

}  // namespace sluice
