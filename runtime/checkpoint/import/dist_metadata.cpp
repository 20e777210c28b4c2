#include "runtime/checkpoint/import/dist_metadata.hpp"

#include <utility>

#include "runtime/checkpoint/format/range_plan.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

// Enough for the chunks of two million tensors.
constexpr PickleLimits kLimits{std::int64_t{1} << 30, std::size_t{64} << 20U, 8};

class MetadataReader {
 public:
  MetadataReader(std::span<const std::byte> pickle, const std::string& path)
      : tree_(parse_pickle(pickle, path, 0, kLimits)) {}

  std::map<std::string, DistTensor> read() {
    const PickleValue& root = tree_.at(tree_.root);
    const PickleValue& tensors = attribute(root, "state_dict_metadata", Kind::kDict, "");
    const PickleValue& places = attribute(root, "storage_data", Kind::kDict, "");
    for (const auto& [key, value] : tree_.entries(tensors)) {
      if (!is_of(*value, "TensorStorageMetadata")) continue;  // a pickled object is no weight
      DistTensor& tensor = all_.emplace(key, tensor_of(key, *value)).first->second;
      for (DistChunk& chunk : tensor.chunks) {
        if (chunks_.emplace(std::pair{key, chunk.offsets}, &chunk).second) continue;
        refuse("has two chunks at " + shape_text(chunk.offsets), key, value->at);
      }
    }
    for (std::size_t i = 0; i + 1 < places.items.size(); i += 2) {
      place(tree_.at(places.items[i]), tree_.at(places.items[i + 1]));
    }
    for (const auto& [key, tensor] : all_) {
      for (const DistChunk& chunk : tensor.chunks) {
        if (chunk.file.empty()) refuse("has a chunk that lies in no file", key, tensor.at);
      }
    }
    return std::move(all_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& key, std::int64_t at) const {
    throw CheckpointError(what, tree_.path, key, at);
  }
  static bool is_of(const PickleValue& value, std::string_view type) {
    return value.kind == Kind::kOpaque && value.text.ends_with(type) &&
           value.text.starts_with("torch.distributed.checkpoint");
  }
  [[nodiscard]] const PickleValue& attribute(const PickleValue& of, std::string_view name,
                                             Kind kind, const std::string& key) const {
    const PickleValue* const value = tree_.find(of, name);
    if (value == nullptr || value->kind != kind) {
      refuse("is no metadata of torch.distributed.checkpoint: " + std::string(name) + " is " +
                 (value == nullptr ? "not there" : kind_text(*value)),
             key, of.at);
    }
    return *value;
  }
  [[nodiscard]] std::vector<std::int64_t> numbers(const PickleValue& of, std::string_view name,
                                                  const std::string& key) const {
    const PickleValue& tuple = attribute(of, name, Kind::kTuple, key);
    std::vector<std::int64_t> found;
    for (const PickleId item : tuple.items) {
      const PickleValue& value = tree_.at(item);
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      if (value.kind != Kind::kInt || value.number < 0 || value.number > kMost) {
        refuse(std::string(name) + " holds no sizes", key, value.at);
      }
      found.push_back(value.number);
    }
    return found;
  }
  [[nodiscard]] std::int64_t number(const PickleValue& of, std::string_view name,
                                    const std::string& key) const {
    return attribute(of, name, Kind::kInt, key).number;
  }

  [[nodiscard]] DistTensor tensor_of(const std::string& key, const PickleValue& value) const {
    DistTensor tensor{numbers(value, "size", key), {}, value.at};
    for (const PickleId item : attribute(value, "chunks", Kind::kList, key).items) {
      const PickleValue& said = tree_.at(item);
      DistChunk chunk{numbers(said, "offsets", key), numbers(said, "sizes", key), "", 0, 0};
      bool fits =
          chunk.offsets.size() == tensor.shape.size() && chunk.sizes.size() == tensor.shape.size();
      for (std::size_t d = 0; d < tensor.shape.size() && fits; ++d) {
        fits = chunk.offsets[d] <= tensor.shape[d] &&
               chunk.sizes[d] <= tensor.shape[d] - chunk.offsets[d];
      }
      if (!fits) {
        refuse("has a chunk of " + shape_text(chunk.sizes) + " at " + shape_text(chunk.offsets) +
                   ", beyond its shape " + shape_text(tensor.shape),
               key, said.at);
      }
      tensor.chunks.push_back(std::move(chunk));
    }
    return tensor;
  }

  void place(const PickleValue& index, const PickleValue& info) {
    if (!is_of(index, "MetadataIndex")) return;
    const std::string& key = attribute(index, "fqn", Kind::kText, "").text;
    if (!all_.contains(key)) return;  // the entry of an object that is no tensor
    const std::vector<std::int64_t> at = numbers(index, "offset", key);
    if (tree_.find(info, "transform_descriptors") != nullptr) {
      refuse("is compressed or otherwise transformed, which is not read", key, info.at);
    }
    const std::string& file = attribute(info, "relative_path", Kind::kText, key).text;
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos) {
      refuse("lies in " + file + ", which is no file of this folder", key, info.at);
    }
    const auto chunk = chunks_.find({key, at});
    if (chunk == chunks_.end() || !chunk->second->file.empty()) {
      refuse("lies at " + shape_text(at) + ", where it has no chunk, or has been placed already",
             key, index.at);
    }
    chunk->second->file = file;
    chunk->second->offset = number(info, "offset", key);
    chunk->second->bytes = number(info, "length", key);
  }

  PickleTree tree_;
  std::map<std::string, DistTensor> all_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, DistChunk*> chunks_;
};

}  // namespace

std::map<std::string, DistTensor> parse_dist_metadata(std::span<const std::byte> pickle,
                                                      const std::string& path) {
  return MetadataReader(pickle, path).read();
}

}  // namespace sluice
