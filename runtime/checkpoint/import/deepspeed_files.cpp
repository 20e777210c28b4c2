#include "runtime/checkpoint/import/deepspeed_files.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr char kConvert[] =
    "; convert the checkpoint with DeepSpeed's ds_to_universal, and import the result";

// The parts of a name: [PREFIX_]zero_pp_rank_R_mp_rank_M_model_states.pt, or without R.
struct FileName {
  std::string name, prefix;
  bool optimizer = false;
  int rank = -1, model_rank = 0;
};

// Takes `text` off the front of `name`.
bool take(std::string_view& name, std::string_view text) {
  if (!name.starts_with(text)) return false;
  name.remove_prefix(text.size());
  return true;
}

bool take_number(std::string_view& name, int& into) {
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), into);
  if (error != std::errc{} || into < 0) return false;
  name.remove_prefix(static_cast<std::size_t>(end - name.data()));
  return true;
}

std::optional<FileName> parse_name(const std::string& file) {
  FileName found;
  found.name = file;
  std::string_view name = file;
  for (const char* const prefix : {"bf16_", "fp16_"}) {
    if (take(name, prefix)) found.prefix = prefix;
  }
  if (take(name, "zero_pp_rank_") && (!take_number(name, found.rank) || !take(name, "_"))) {
    return std::nullopt;
  }
  if (!take(name, "mp_rank_") || !take_number(name, found.model_rank)) return std::nullopt;
  if (name == "_model_states.pt") return found;
  found.optimizer = name == "_optim_states.pt" || name == "optim_states.pt";  // the older name
  return found.optimizer && found.rank >= 0 ? std::optional(found) : std::nullopt;
}

std::string name_of(const std::string& prefix, int rank, const char* what) {
  return format_text("{}zero_pp_rank_{}_mp_rank_00_{}_states.pt", prefix, rank, what);
}

class Opener {
 public:
  explicit Opener(const std::string& dir) { files_.dir = dir; }

  DeepSpeedFiles open() {
    for (const std::string& name : local_file_system().list(files_.dir)) {
      refuse_parallel(name);
      const std::optional<FileName> found = parse_name(name);
      if (!found) continue;
      if (found->model_rank > 0) {
        throw error(name, "is of model-parallel rank " + std::to_string(found->model_rank) +
                              ": ZeRO's shards of tensor parallelism are not read" + kConvert);
      }
      add(*found);
    }
    refuse_lost();
    open_optimizers();
    open_models();
    return std::move(files_);
  }

 private:
  [[nodiscard]] CheckpointError error(const std::string& name, const std::string& what,
                                      std::int64_t at = -1) const {
    return {what, join_path(files_.dir, name), "", at};
  }

  void refuse_parallel(const std::string& name) const {
    if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_")) {
      throw error(name, "is of a mixture of experts; Sluice has no experts");
    }
    if (name.starts_with("layer_") && name.ends_with("model_states.pt")) {
      throw error(name,
                  "is a layer of a pipeline: DeepSpeed's pipelines are not read; convert the "
                  "checkpoint with deepspeed_to_megatron.py of Megatron-DeepSpeed, and import the "
                  "result's weights");
    }
    if (name == "offloaded_tensors") {
      throw error(name,
                  "holds optimizer states that were on NVMe, as swap files, which are not read; "
                  "train from weights: write them in DeepSpeed with save_16bit_model, and import "
                  "that as a Hugging Face folder");
    }
  }

  void add(const FileName& found) {
    if (!found.optimizer) {
      models_.emplace(found.rank, found);
      return;
    }
    const auto [other, is_new] = optimizers_.emplace(found.rank, found);
    if (is_new) return;
    throw error(found.name, "is of rank " + std::to_string(found.rank) + ", and so is " +
                                other->second.name +
                                ": two saves are mixed; remove the files of the older one");
  }

  void refuse_lost() const {
    if (!optimizers_.empty()) return;
    if (models_.empty()) throw CheckpointError("holds no file of DeepSpeed", files_.dir);
    const FileName& model = models_.begin()->second;
    const TorchFile file(join_path(files_.dir, model.name));
    const PickleValue* const own = file.tree().find(file.root(), "optimizer");
    const bool without_zero = own != nullptr && own->kind != Kind::kNone;
    throw error(model.name,
                without_zero
                    ? "was saved without ZeRO, whose optimizer states are in another form; write "
                      "the weights in DeepSpeed with save_16bit_model, and import that as a "
                      "Hugging Face folder"
                    : "has no *_optim_states.pt beside it, which hold the fp32 weights and "
                      "moments: copy the files of every rank, from every host, into one folder");
  }

  [[nodiscard]] std::shared_ptr<TorchFile> open_file(const std::string& name,
                                                     std::int64_t world) const {
    const std::string path = join_path(files_.dir, name);
    if (file_exists(path)) return std::make_shared<TorchFile>(path);
    const std::string of = world > 0 ? format_text("of {} ranks", world) : "of several ranks";
    throw error(name, "is missing from a checkpoint " + of +
                          ": copy the files of every rank, from every host, into one folder");
  }

  // Ranks of the save, which the rank's file states: a number, or one for each group.
  [[nodiscard]] std::int64_t ranks_of(const TorchFile& file) const {
    const PickleValue* const states = file.tree().find(file.root(), "optimizer_state_dict");
    const PickleValue* const count =
        states == nullptr ? nullptr : file.tree().find(*states, "partition_count");
    if (count == nullptr) {
      throw CheckpointError("holds no optimizer_state_dict with a partition_count: not of ZeRO",
                            file.path(), "", file.root().at);
    }
    std::vector<const PickleValue*> counts{count};
    if (count->kind == Kind::kList || count->kind == Kind::kTuple) {
      counts.clear();
      for (const PickleId id : count->items) counts.push_back(&file.tree().at(id));
    }
    for (const PickleValue* const one : counts) {
      const bool same = one->kind == Kind::kInt && one->number == counts[0]->number;
      if (same && one->number > 0) continue;
      throw CheckpointError("is cut into another number of parts for each group, as experts are",
                            file.path(), "partition_count", one->at);
    }
    return counts.empty() ? 0 : counts[0]->number;
  }

  void open_optimizers() {
    const std::string prefix = optimizers_.begin()->second.prefix;
    std::int64_t world = 0;
    for (int rank = 0; rank == 0 || rank < world; ++rank) {
      const auto found = optimizers_.find(rank);
      const std::string name =
          found == optimizers_.end() ? name_of(prefix, rank, "optim") : found->second.name;
      files_.optimizers.push_back(open_file(name, world));
      const std::int64_t said = ranks_of(*files_.optimizers.back());
      if (rank == 0) world = said;
      if (said == world) continue;
      throw error(name, format_text("is of {} ranks, and {} is of {}: two saves are mixed; remove "
                                    "the files of the older one",
                                    said, files_.optimizers[0]->path(), world));
    }
    const FileName& last = optimizers_.rbegin()->second;
    if (last.rank < world) return;
    throw error(last.name, format_text("is of rank {} of a checkpoint of {} ranks: two saves are "
                                       "mixed; remove the files of the older one",
                                       last.rank, world));
  }

  void open_models() {
    const auto has = [this](int rank, const char* key) {
      return nth(files_.optimizers, rank)->tree().find(files_.states(rank), key) != nullptr;
    };
    files_.stage3 = has(0, "fp32_flat_groups");
    for (int rank = 0; rank < files_.world(); ++rank) {
      if (has(rank, files_.stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups"))
        continue;
      const TorchFile& file = *nth(files_.optimizers, rank);
      throw CheckpointError(format_text("holds no fp32 weights of ZeRO{}",
                                        rank > 0 ? " of the stage that rank 0's file has" : ""),
                            file.path(), "", files_.states(rank).at);
    }
    if (!files_.stage3) {
      files_.models.push_back(open_file("mp_rank_00_model_states.pt", files_.world()));
      return;
    }
    for (int rank = 0; rank < files_.world(); ++rank) {
      files_.models.push_back(open_file(name_of("", rank, "model"), files_.world()));
    }
  }

  DeepSpeedFiles files_;
  std::map<int, FileName> optimizers_, models_;  // by rank
};

}  // namespace

const PickleValue& DeepSpeedFiles::states(int rank) const {
  const TorchFile& file = *nth(optimizers, rank);
  return *file.tree().find(file.root(), "optimizer_state_dict");
}

bool has_deepspeed_files(const std::string& dir) {
  const auto found = local_file_system().stat(dir);
  if (!found || !found->directory) return false;
  const std::vector<std::string> names = local_file_system().list(dir);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return parse_name(name).has_value(); });
}

DeepSpeedFiles open_deepspeed_files(const std::string& dir) { return Opener(dir).open(); }

ImportNames deepspeed_names(const std::vector<std::string>& params) {
  const bool megatron = std::any_of(params.begin(), params.end(), [](const std::string& name) {
    return name.find("query_key_value") != std::string::npos ||
           name.find("linear_qkv") != std::string::npos;
  });
  return megatron ? ImportNames::kMegatron : ImportNames::kHuggingFace;
}

DeepSpeedRun read_deepspeed_run(const TorchFile& file, ImportNames names) {
  DeepSpeedRun run;
  run.names = names;
  run.progress.step = whole_number(file.tree(), file.root(), "global_steps");
  run.progress.samples = whole_number(file.tree(), file.root(), "global_samples");
  const std::int64_t skipped = whole_number(file.tree(), file.root(), "skipped_steps");
  run.progress.updates = std::max<std::int64_t>(0, run.progress.step - skipped);
  const PickleValue* const args = file.tree().find(file.root(), "args");
  if (args != nullptr && names == ImportNames::kMegatron) {
    run.model = megatron_model(file.tree(), *args, file.path());
  }
  return run;
}

}  // namespace sluice
