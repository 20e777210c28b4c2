#include "runtime/checkpoint/import/megatron_files.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/import/import_layout.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr char kFile[] = "model_optim_rng.pt";
constexpr double kFirstStacked = 2.0;  // earlier versions stack q, k and v in another order
constexpr int kMostDepth = 8;          // of nested dictionaries

std::string digits(int number, std::size_t least) {
  const std::string text = std::to_string(number);
  return std::string(least - std::min(least, text.size()), '0') + text;
}

std::string folder_name(int tensor_rank, int stage, bool pipeline) {
  return "mp_rank_" + digits(tensor_rank, 2) + (pipeline ? "_" + digits(stage, 3) : "");
}

// The number N of "layers.N." at the begin of a name or after a dot.
struct LayerNumber {
  std::size_t at = 0, length = 0;  // position of the digits
  std::int64_t number = 0;
};
std::optional<LayerNumber> layer_number(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t found = name.find(kLayers);
  if (found == std::string::npos || (found > 0 && name[found - 1] != '.')) return std::nullopt;
  LayerNumber layer{found + kLayers.size(), 0, 0};
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + layer.at, end, layer.number);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != '.' || layer.number < 0) {
    return std::nullopt;
  }
  layer.length = static_cast<std::size_t>(read.ptr - name.data()) - layer.at;
  return layer;
}

// Collects the tensors of one chunk in the order of the file.
class Collector {
 public:
  Collector(const TorchFile& file, std::string chunk) : file_(file), chunk_(std::move(chunk)) {}

  std::vector<MegatronTensor> collect(const PickleValue& model) {
    walk(model, "", 0);
    return std::move(found_);
  }

 private:
  void walk(const PickleValue& in, const std::string& prefix, int depth) {
    const PickleTree& tree = file_.tree();
    if (depth > kMostDepth) {
      throw CheckpointError("nests its model too deep", file_.path(), prefix, in.at);
    }
    for (std::size_t i = 0; i + 1 < in.items.size(); i += 2) {
      // Bounds the walk: a dictionary may be contained in several others, or in itself.
      if (++walked_ > tree.values.size()) {
        throw CheckpointError("holds one dictionary in many places", file_.path(), prefix, in.at);
      }
      const PickleValue& key = tree.at(in.items[i]);
      const PickleValue& value = tree.at(in.items[i + 1]);
      if (key.kind != Kind::kText) continue;
      const std::string name = prefix.empty() ? key.text : prefix + "." + key.text;
      if (value.kind == Kind::kDict) walk(value, name, depth + 1);
      if (value.kind == Kind::kTensor) add(name, value);
      // Other values are no weights. Missing weights are reported later.
    }
  }
  void add(const std::string& name, const PickleValue& value) {
    std::string canonical = canonical_import_name(ModelType::kGpt2, ImportNames::kMegatron, name);
    if (canonical.empty()) return;
    if (!names_.insert(name).second) {
      throw CheckpointError("occurs twice", file_.path(), chunk_ + "." + name, value.at);
    }
    found_.push_back({chunk_ + "." + name, name, std::move(canonical), {&value, nullptr, nullptr}});
  }

  const TorchFile& file_;
  std::string chunk_;
  std::vector<MegatronTensor> found_;
  std::set<std::string> names_;
  std::size_t walked_ = 0;
};

// The number of layers of a chunk. Throws unless every number from 0 on occurs.
std::int64_t count_layers(const MegatronFile& in, const std::vector<MegatronTensor>& chunk) {
  std::set<std::int64_t> numbers;
  for (const MegatronTensor& tensor : chunk) {
    if (const auto layer = layer_number(tensor.name)) numbers.insert(layer->number);
  }
  if (!numbers.empty() && *numbers.rbegin() != static_cast<std::int64_t>(numbers.size()) - 1) {
    throw CheckpointError(format_text("holds {} layers, the last of them {}: numbers are left out",
                                      numbers.size(), *numbers.rbegin()),
                          in.file->path(), chunk.front().in_file);
  }
  return static_cast<std::int64_t>(numbers.size());
}

MegatronFile open_file(const std::string& path, int tensor_rank, int stage) {
  MegatronFile in{std::make_shared<TorchFile>(path), tensor_rank, stage, {}, {}};
  const PickleTree& tree = in.file->tree();
  const PickleValue& root = in.file->root();
  std::vector<std::pair<std::string, const PickleValue*>> chunks;
  if (const PickleValue* const model = tree.find(root, "model"))
    chunks.emplace_back("model", model);
  for (int i = 0; chunks.empty() || i > 0; ++i) {
    const std::string name = format_text("model{}", i);
    const PickleValue* const model = tree.find(root, name);
    if (model == nullptr && i == 0) {
      throw CheckpointError("holds no `model` and no `model0`", path, "", root.at);
    }
    if (model == nullptr) break;
    chunks.emplace_back(name, model);
  }
  for (const auto& [name, model] : chunks) {
    if (model->kind != Kind::kDict) {
      throw CheckpointError("holds " + kind_text(*model) + " where the model's tensors are to be",
                            path, name, model->at);
    }
    in.chunks.push_back(Collector(*in.file, name).collect(*model));
    in.layers.push_back(count_layers(in, in.chunks.back()));
  }
  return in;
}

// An integer of Megatron's arguments, if the file has it.
std::optional<std::int64_t> argument(const MegatronFile& in, std::string_view key) {
  const PickleValue* const args = in.file->tree().find(in.file->root(), "args");
  const PickleValue* const value = args == nullptr ? nullptr : in.file->tree().find(*args, key);
  if (value == nullptr || value->kind != Kind::kInt) return std::nullopt;
  return value->number;
}

CheckpointError wrong_file(const MegatronFile& in, const std::string& what) {
  return {what, in.file->path(), "", in.file->root().at};
}

void check_version(const MegatronFile& in) {
  const PickleTree& tree = in.file->tree();
  const PickleValue* const version = tree.find(in.file->root(), "checkpoint_version");
  const double given = version == nullptr              ? 0
                       : version->kind == Kind::kFloat ? version->real
                                                       : static_cast<double>(version->number);
  if (given >= kFirstStacked) return;
  throw wrong_file(in, "checkpoint_version is " +
                           (version == nullptr ? "not there" : std::to_string(given)) +
                           "; 2.0 and later are read, earlier ones order q, k and v in other ways");
}

// Opens the files. Throws unless the folders form a full grid of ranks and stages.
MegatronFiles open_grid(const std::string& dir) {
  std::set<std::string> folders;
  for (const std::string& name : local_file_system().list(dir)) {
    if (is_rank_folder(name)) folders.insert(name);
  }
  const bool pipeline = std::any_of(folders.begin(), folders.end(), [](const std::string& name) {
    return std::count(name.begin(), name.end(), '_') > 2;
  });
  MegatronFiles all;
  while (all.tensor_ranks == 0 || folders.contains(folder_name(all.tensor_ranks, 0, pipeline))) {
    ++all.tensor_ranks;
  }
  while (all.stages == 0 || (pipeline && folders.contains(folder_name(0, all.stages, true)))) {
    ++all.stages;
  }
  for (int rank = 0; rank < all.tensor_ranks; ++rank) {
    for (int stage = 0; stage < all.stages; ++stage) {
      const std::string name = folder_name(rank, stage, pipeline);
      if (folders.erase(name) == 0) {
        throw CheckpointError("there is no " + name + ", but folders of other ranks exist", dir);
      }
      all.files.push_back(open_file(join_path(join_path(dir, name), kFile), rank, stage));
    }
  }
  if (!folders.empty()) {
    throw CheckpointError(
        format_text(
            "is of none of the {} tensor-parallel ranks and {} stages that are there without a "
            "gap: a folder before it is missing, or it is of experts, which are not built here",
            all.tensor_ranks, all.stages),
        join_path(dir, *folders.begin()));
  }
  return all;
}

void check_sizes(const MegatronFiles& all, const MegatronFile& in) {
  const auto chunks = static_cast<std::int64_t>(all.files[0].chunks.size());
  for (const auto& [key, found, of] :
       {std::tuple{"tensor_model_parallel_size", std::int64_t{all.tensor_ranks},
                   "tensor-parallel ranks"},
        {"pipeline_model_parallel_size", std::int64_t{all.stages}, "pipeline stages"},
        {"virtual_pipeline_model_parallel_size", chunks, "virtual stages"}}) {
    const auto said = argument(in, key);
    if (!said || *said == found) continue;
    throw wrong_file(in,
                     format_text("args.{} is {}, and files of {} {} exist", key, *said, found, of));
  }
  if (static_cast<std::int64_t>(in.chunks.size()) == chunks) return;
  throw wrong_file(in, format_text("holds {} chunks of the model, and {} {}", in.chunks.size(),
                                   all.files[0].file->path(), chunks));
}

// In every rank order of Megatron, the rank that wrote a file rises with tensor-parallel rank and
// stage. Converters write all files from one rank.
void check_writer(const MegatronFile& before, const MegatronFile& in) {
  const auto rank = argument(in, "rank");
  const auto other = argument(before, "rank");
  if (!rank || !other || *rank >= *other) return;
  throw wrong_file(
      in, format_text("was written by rank {}, and {} by rank {}: files of two ranks are swapped",
                      *rank, before.file->path(), *other));
}

// Checks that the layout and position in each file match the name of its folder.
void check_places(const MegatronFiles& all) {
  const auto iteration = [](const MegatronFile& in) {
    return whole_number(in.file->tree(), in.file->root(), "iteration");
  };
  for (const MegatronFile& in : all.files) {
    check_version(in);
    check_sizes(all, in);
    if (iteration(in) != iteration(all.files[0])) {
      throw wrong_file(in, format_text("is of iteration {}, and {} of {}", iteration(in),
                                       all.files[0].file->path(), iteration(all.files[0])));
    }
    if (in.stage > 0) check_writer(all.at(in.tensor_rank, in.stage - 1), in);
    if (in.tensor_rank > 0) check_writer(all.at(in.tensor_rank - 1, in.stage), in);
  }
}

// Checks that only the first chunk has the embedding, and only the last the final norm and the
// head.
void check_ends(const MegatronFile& in, std::size_t chunk, bool first, bool last) {
  bool embedding = false;
  bool norm = false;
  const auto refuse = [&](const MegatronTensor& tensor, const std::string& whose) {
    throw CheckpointError(format_text("is of the {} stage, and this is stage {}: files of two "
                                      "stages are swapped, or one is missing",
                                      whose, in.stage),
                          in.file->path(), tensor.in_file, tensor.states[0]->at);
  };
  for (const MegatronTensor& tensor : in.chunks[chunk]) {
    const bool of_table = tensor.canonical.starts_with("embedding.");
    const bool of_norm = tensor.canonical.starts_with("decoder.final_");
    const bool of_head = tensor.canonical == import_head_name(ImportNames::kMegatron);
    if (of_table && !first) refuse(tensor, "first");
    if ((of_norm || of_head) && !last) refuse(tensor, "last");
    embedding = embedding || of_table;
    norm = norm || of_norm;
  }
  if ((first && !embedding) || (last && !norm)) {
    throw wrong_file(
        in,
        format_text(
            "holds no {}, which is stage {}'s: files of two stages are swapped, or one is missing",
            first && !embedding ? "embedding" : "final norm", in.stage));
  }
}

std::string layers_text(const MegatronFiles& all) {
  std::string text;
  for (int stage = 0; stage < all.stages; ++stage) {
    std::int64_t layers = 0;
    for (const std::int64_t count : all.at(0, stage).layers) layers += count;
    text += format_text("{}{}", stage == 0 ? "" : " + ", layers);
  }
  return text;
}

// Replaces layer numbers by global numbers: chunk by chunk, within a chunk stage by stage.
void number_layers(MegatronFiles& all) {
  const std::size_t chunks = all.files[0].chunks.size();
  std::int64_t before = 0;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (int stage = 0; stage < all.stages; ++stage) {
      const std::int64_t layers = all.at(0, stage).layers[chunk];
      for (MegatronFile& in : all.files) {
        if (in.stage != stage) continue;
        check_ends(in, chunk, chunk == 0 && stage == 0,
                   chunk + 1 == chunks && stage + 1 == all.stages);
        if (in.layers[chunk] != layers) {
          throw wrong_file(in, format_text("holds {} layers, and {} {}", in.layers[chunk],
                                           all.at(0, stage).file->path(), layers));
        }
        for (MegatronTensor& tensor : in.chunks[chunk]) {
          if (const auto layer = layer_number(tensor.name)) {
            tensor.name.replace(layer->at, layer->length, std::to_string(layer->number + before));
          }
        }
      }
      before += layers;
    }
  }
  const MegatronFile& last = all.files.back();
  const auto said = argument(last, "num_layers");
  if (!said || *said == before) return;
  throw wrong_file(last, format_text("args.num_layers is {}, and its stages hold {} layers: a "
                                     "stage's file is another's or missing",
                                     *said, layers_text(all)));
}

}  // namespace

MegatronFiles open_megatron_files(const std::string& dir) {
  MegatronFiles all = open_grid(dir);
  check_places(all);
  number_layers(all);
  return all;
}

}  // namespace sluice
