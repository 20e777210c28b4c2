#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/prepare/indexed_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

constexpr std::size_t kBinBytes = 64;

// A folder of this process with a .bin; removed at the end.
class PairFolder {
 public:
  PairFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-idx-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    std::string tokens;
    for (std::size_t i = 0; i < kBinBytes; ++i) tokens += static_cast<char>(i);
    write("p.bin", tokens);
  }
  ~PairFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PairFolder(const PairFolder&) = delete;
  PairFolder& operator=(const PairFolder&) = delete;

  void write(const char* name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  [[nodiscard]] std::string prefix() const { return path_ / "p"; }

 private:
  std::filesystem::path path_;
};

// The tokens of all documents; -1: refused.
std::int64_t tokens_by_document(const std::string& prefix) {
  try {
    const IndexedFile file(prefix);
    std::int64_t tokens = 0;
    IndexedFile::Document document;
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      file.read(d, document);
      for (std::size_t s = 0; s < document.lengths.size(); ++s) {
        if (std::ssize(document.tokens[s]) != document.lengths[s] * size_of(file.type())) {
          std::abort();
        }
        for (const std::byte byte : document.tokens[s]) {
          if (std::to_integer<std::size_t>(byte) >= kBinBytes) std::abort();
        }
        tokens += document.lengths[s];
      }
    }
    return tokens;
  } catch (const IoError&) {
    return -1;
  }
}

}  // namespace

void fuzz_indexed(std::span<const std::byte> bytes) {
  static const PairFolder folder;
  folder.write("p.idx", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const std::int64_t tokens = tokens_by_document(folder.prefix());
  try {
    const IndexedDataset data(folder.prefix());
    // The dataset checks more than the file does.
    if (data.size() != tokens || data.document_starts().back() != tokens) std::abort();
    std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
    data.read(0, all);
  } catch (const IoError&) {
    return;
  }
}

}  // namespace sluice::testing
