#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "runtime/checkpoint/import/dist_metadata.hpp"
#include "runtime/checkpoint/import/import_states.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// A checkpoint whose files are one: the pickle, and zeros for whatever storages it names.
class Folder {
 public:
  explicit Folder(std::vector<std::string> files)
      : path_(fs::temp_directory_path() /
              ("sluice-fuzz-" + std::to_string(::getpid()) + "-" + std::to_string(files.size()))),
        files_(std::move(files)) {
    for (const std::string& file : files_) fs::create_directories((path_ / file).parent_path());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  // False: it names more than a file of this size would have.
  bool write(std::span<const std::byte> pickle) const {
    std::vector<ZipPart> parts{
        {"a/data.pkl", {reinterpret_cast<const char*>(pickle.data()), pickle.size()}}};
    constexpr std::int64_t kMost = 1 << 15;
    std::int64_t bytes = 0;
    for (const PickleStorage& storage : parse_pickle(pickle, "fuzz").storages) {
      if (storage.elems > kMost) return false;
      const std::int64_t more = storage.elems * size_of(storage.dtype);
      bytes += more;
      if (bytes > kMost) return false;
      parts.push_back({"a/data/" + storage.key, std::string(static_cast<std::size_t>(more), 0)});
    }
    const std::string bytes_of_file = zipped(parts);
    for (const std::string& file : files_) {
      std::ofstream(path_ / file, std::ios::binary) << bytes_of_file;
    }
    return true;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
  std::vector<std::string> files_;
};

// Opens a checkpoint whose files have this pickle, and every tensor in it.
void open_all(const Folder& folder, std::span<const std::byte> pickle) {
  try {
    if (!folder.write(pickle)) return;
    const auto source = open_import(folder.path());
    std::vector<float> row;
    for (const std::string& name : source->tensors(0)) {
      for (const StateKind kind : kStateKinds) {
        if (!source->has(0, name, kind)) continue;
        const OpenTensor tensor = source->open(0, name, kind);
        const std::vector<std::int64_t>& shape = tensor.shape();
        constexpr std::int64_t kMostCols = 1 << 15;
        if (shape.size() != 2 || shape[0] == 0 || shape[1] > kMostCols) continue;
        tensor.check_dtype();
        tensor.check_storage();
        row.resize(static_cast<std::size_t>(shape[1]));
        tensor.read_row(shape[0] - 1, 0, row);
        tensor.let_go();
      }
    }
    (void)source->progress();
    ModelOptions model = source->model().value_or(ModelOptions());
    model.vocab = 11;
    (void)import_tables(*source, model.type, model.hidden);
  } catch (const Error&) {
    return;
  }
}

}  // namespace

void fuzz_megatron(std::span<const std::byte> bytes) {
  static const Folder folder({"mp_rank_00/model_optim_rng.pt"});
  open_all(folder, bytes);
}

void fuzz_deepspeed(std::span<const std::byte> bytes) {
  static const Folder folder({"mp_rank_00_model_states.pt",
                              "zero_pp_rank_0_mp_rank_00_model_states.pt",
                              "zero_pp_rank_0_mp_rank_00_optim_states.pt"});
  open_all(folder, bytes);
}

void fuzz_dist_metadata(std::span<const std::byte> bytes) {
  try {
    for (const auto& [key, tensor] : parse_dist_metadata(bytes, "fuzz")) {
      for (const DistChunk& chunk : tensor.chunks) {
        const bool named = !chunk.file.empty() && chunk.file.find('/') == std::string::npos;
        if (!named || chunk.offsets.size() != tensor.shape.size()) std::abort();
      }
    }
  } catch (const CheckpointError&) {
    return;
  }
}

}  // namespace sluice::testing
