#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr char kKey[] = "eos_token_id";
constexpr std::int64_t kMostIds = std::int64_t{1} << 31;

std::vector<std::int32_t> ids_of(const std::string& path, const Json& value) {
  std::vector<std::int32_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    const bool whole = id.is_number_integer() && id >= -1 && id < kMostIds;
    if (!whole) {
      throw ConfigError(path + ": " + kKey + ": " + shown(value) +
                        ": is neither a token's number nor a list of them");
    }
    if (id != -1) ids.push_back(id.get<std::int32_t>());  // some models write -1 for "no token"
  }
  return ids;
}

}  // namespace

std::vector<std::int32_t> read_hf_end_tokens(const std::string& dir) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = join_path(dir, name);
    if (!local_file_system().stat(path)) continue;
    const Json json = read_hf_json(path);
    const auto found = json.find(kKey);
    if (found != json.end() && !found->is_null()) return ids_of(path, *found);
  }
  return {};
}

}  // namespace sluice
