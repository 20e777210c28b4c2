// Shared functions of the readers of other programs' checkpoints, and the choice of a reader.
#include "runtime/checkpoint/import/import_source.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/checkpoint/import/deepspeed_files.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr double kMostCount = 1e15;

bool has_rank_folder(const std::string& dir) {
  if (!file_exists(dir)) return false;
  const std::vector<std::string> names = local_file_system().list(dir);
  return std::any_of(names.begin(), names.end(), is_rank_folder);
}

// A folder of DeepSpeed checkpoints names one in the file `latest`. Other programs have folders of
// this name.
std::string deepspeed_step(const std::string& dir, const char* latest) {
  const std::string path = join_path(dir, latest);
  const auto found = local_file_system().stat(path);
  const std::string tag = found && !found->directory ? first_line(path) : "";
  return tag.empty() ? dir : join_path(dir, tag);
}

// A folder of Megatron checkpoints names the checkpoint to use; the folder of one checkpoint does
// not.
std::string megatron_step(const std::string& dir) {
  const std::string iteration = first_line(join_path(dir, "latest_checkpointed_iteration.txt"));
  if (iteration.empty()) return dir;
  if (iteration == "release") return join_path(dir, iteration);
  constexpr std::size_t kDigits = 7;
  const std::string zeros(kDigits - std::min(kDigits, iteration.size()), '0');
  return join_path(dir, "iter_" + zeros + iteration);
}

}  // namespace

bool is_rank_folder(const std::string& name) {
  constexpr std::string_view kBegin = "mp_rank_";
  return name.size() > kBegin.size() && name.starts_with(kBegin) &&
         name.find_first_not_of("0123456789_", kBegin.size()) == std::string::npos;
}

bool file_exists(const std::string& path) { return local_file_system().stat(path).has_value(); }

std::string first_line(const std::string& path) {
  if (!file_exists(path)) return "";
  constexpr std::int64_t kMost = 4096;
  const std::string text = read_text(local_file_system(), path, kMost);
  return text.substr(0, text.find_first_of("\r\n"));
}

std::int64_t whole_number(const PickleTree& tree, const PickleValue& in, std::string_view key) {
  const PickleValue* const value = tree.find(in, key);
  if (value == nullptr) return 0;
  if (value->kind == Kind::kInt) return std::max<std::int64_t>(0, value->number);
  const bool counts = value->kind == Kind::kFloat && value->real >= 0 && value->real < kMostCount;
  return counts ? static_cast<std::int64_t>(value->real) : 0;
}

std::int64_t updates_of(TorchFile& file, const PickleValue& value) {
  double count = -1;
  if (value.kind == Kind::kInt) count = static_cast<double>(value.number);
  if (value.kind == Kind::kFloat) count = value.real;
  if (value.kind == Kind::kTensor) {
    file.check_storage(value, "step");
    count = file.read_number(value, "step");
  }
  if (!(count >= 0 && count <= kMostCount) || count != std::floor(count)) {
    throw CheckpointError("is no number of updates", file.path(), "step", value.at);
  }
  return static_cast<std::int64_t>(count);
}

std::unique_ptr<ImportSource> open_import(const std::string& dir, const ImportWhat& what) {
  if (what.format != ImportFormat::kMegatron) {
    const std::string universal = deepspeed_step(dir, "latest_universal");
    if (file_exists(join_path(universal, "zero"))) {
      return open_deepspeed_universal(universal, what.weights_only);
    }
    const std::string saved = deepspeed_step(dir, "latest");
    if (has_deepspeed_files(saved)) return open_deepspeed_zero(saved, what.weights_only);
  }
  if (what.format != ImportFormat::kDeepSpeed) {
    const std::string step = megatron_step(dir);
    if (has_rank_folder(step)) return open_megatron(step, what.weights_only);
    if (file_exists(join_path(step, ".metadata")) && file_exists(join_path(step, "common.pt"))) {
      return open_megatron_dist(step, what.weights_only);
    }
  }
  return nullptr;
}

}  // namespace sluice
