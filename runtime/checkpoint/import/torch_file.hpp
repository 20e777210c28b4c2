// A mapped file of torch.save (torch 1.6 or newer: a zip), whose pickle is read as data
// (pickle.hpp).
//
// The bytes of a tensor are read on demand. check_storage() compares a storage once with the zip's
// checksum, if the writer gave one. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

class MappedFile;

class TorchFile {
 public:
  // Throws IoError. Throws CheckpointError for another kind of file, a big-endian file, a refused
  // pickle, and a storage that is missing or has another size than in the pickle.
  explicit TorchFile(const std::string& path);
  // One of several torch files in a mapped file; path() then includes the offset.
  TorchFile(std::shared_ptr<const MappedFile> file, std::int64_t offset, std::int64_t bytes);
  ~TorchFile();
  TorchFile(TorchFile&& other) noexcept;
  TorchFile& operator=(TorchFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const PickleTree& tree() const;
  [[nodiscard]] const PickleValue& root() const { return tree().at(tree().root); }

  // REQUIRES for all functions with a `value`: value.kind is kTensor.
  [[nodiscard]] const PickleTensor& tensor(const PickleValue& value) const;
  // fp32, bf16 or fp16. Throws CheckpointError, which names `name`, for another dtype.
  [[nodiscard]] DType dtype(const PickleValue& value, const std::string& name) const;

  // Compares the storage of a tensor with its checksum, at most once. Throws CheckpointError.
  void check_storage(const PickleValue& value, const std::string& name);
  // Reads columns [col, col + out.size()) of row `row` in fp32; a vector has row 0 only. REQUIRES:
  // check_storage() was called, and dimensions before the last two are 1.
  void read_row(const PickleValue& value, std::int64_t row, std::int64_t col,
                std::span<float> out) const;
  // The element of a tensor with one element: fp32, fp64, bf16, fp16, int32 or int64. Throws
  // CheckpointError for more elements or another dtype. REQUIRES: check_storage() was called.
  [[nodiscard]] double read_number(const PickleValue& value, const std::string& name) const;
  // Releases the pages that were read from this process's resident memory.
  void let_go(const PickleValue& value) const;
  // The same for elements [from, from + elems) of a vector.
  void let_go(const PickleValue& value, std::int64_t from, std::int64_t elems) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The checked contents of a torch file; TorchFile's constructor parses them.
struct TorchContents {
  PickleTree tree;
  struct Place {
    std::int64_t offset = 0, bytes = 0;
    std::uint32_t crc = 0;
  };
  std::vector<Place> storages;  // in the order of tree.storages
};
[[nodiscard]] TorchContents parse_torch_file(std::span<const std::byte> file,
                                             const std::string& path);

}  // namespace sluice
