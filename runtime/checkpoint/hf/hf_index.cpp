// The files of a Hugging Face folder's weights, and their index.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr HfJsonLimits kIndexLimits{.bytes = std::int64_t{64} << 20, .depth = 4};
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// True for a safetensors file name that cannot leave the folder.
bool is_plain_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

HfFiles parse_hf_index(const std::string& dir, const std::string& path, std::string_view text) {
  const nlohmann::json json = parse_hf_json(path, text, kIndexLimits);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    throw CheckpointError("has no weight_map of tensors and files", path);
  }
  HfFiles files{{}, path, {}};
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      throw CheckpointError("its file " + shown(file) + " is no name of a .safetensors file", path,
                            tensor);
    }
    const std::string file_path = (fs::path(dir) / file.get<std::string>()).string();
    names.insert(file_path);
    files.weight_map.emplace(tensor, file_path);
  }
  files.paths.assign(names.begin(), names.end());
  return files;
}

HfFiles find_hf_files(const std::string& dir) {
  const fs::path folder(dir);
  if (is_file(folder / kSingle)) return {{(folder / kSingle).string()}, "", {}};
  const std::string index = (folder / kIndex).string();
  if (is_file(index)) {
    HfFiles files =
        parse_hf_index(dir, index, read_text(local_file_system(), index, kIndexLimits.bytes));
    for (const auto& [tensor, path] : files.weight_map) {
      if (!is_file(path)) throw CheckpointError("its file " + path + " is missing", index, tensor);
    }
    return files;
  }
  const bool pickled =
      is_file(folder / "pytorch_model.bin") || is_file(folder / "pytorch_model.bin.index.json");
  throw CheckpointError(std::string("there is neither ") + kSingle + " nor " + kIndex +
                            (pickled ? "; pytorch_model.bin is a pickle and is not read: save the "
                                       "model again as safetensors"
                                     : ""),
                        dir);
}

std::string write_hf_index(const std::map<std::string, std::string>& weight_map,
                           std::int64_t total_bytes) {
  nlohmann::json json;
  json["metadata"]["total_size"] = total_bytes;
  json["weight_map"] = weight_map;
  return json.dump(2) + "\n";
}

}  // namespace sluice
