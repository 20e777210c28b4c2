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

// A checkpoint of one file: the pickle, and zeros for whatever storages it names.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("sluice-fuzz-" + std::to_string(::getpid()))) {
    fs::create_directories(path_ / "mp_rank_00");
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
    std::ofstream(path_ / "mp_rank_00" / "model_optim_rng.pt", std::ios::binary) << zipped(parts);
    return true;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

}  // namespace

void fuzz_megatron(std::span<const std::byte> bytes) {
  static const Folder folder;
  try {
    if (!folder.write(bytes)) return;
    const auto source = open_import(folder.path());
    ModelOptions model = source->model().value_or(ModelOptions());
    model.vocab = 11;
    const ImportTables tables = import_tables(*source, model.type, model.hidden);
    for (const std::string& name : source->tensors(0)) {
      for (const StateKind kind : kStateKinds) {
        if (source->has(0, name, kind)) (void)source->open(0, name, kind).shape();
      }
    }
    (void)source->progress();
    (void)tables;
  } catch (const Error&) {
    return;
  }
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
