// A file of torch.save (torch 1.6 or newer: a zip), mapped, its pickle read as data (pickle.hpp).
//
// A tensor's bytes are looked at when they are asked for; the first time, its storage is compared
// with the checksum that the zip gives, where the writer gave one. For one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

class ReadOnlyMap;

class TorchFile {
 public:
  // Throws IoError, or CheckpointError where it is no such file, was written big-endian, holds a
  // pickle that is refused, or lacks a storage that the pickle names or has it in another size.
  explicit TorchFile(const std::string& path);
  // One of several in a file that is mapped already; path() then says where it begins.
  TorchFile(std::shared_ptr<const ReadOnlyMap> file, std::int64_t offset, std::int64_t bytes);
  ~TorchFile();
  TorchFile(TorchFile&& other) noexcept;
  TorchFile& operator=(TorchFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const PickleTree& tree() const;
  [[nodiscard]] const PickleValue& root() const { return tree().at(tree().root); }

  // REQUIRES, here and below: value.kind is kTensor.
  [[nodiscard]] const PickleTensor& tensor(const PickleValue& value) const;
  // fp32, bf16 or fp16. Throws CheckpointError naming `name` where it is stored as something else.
  [[nodiscard]] DType dtype(const PickleValue& value, const std::string& name) const;

  // Compares the storage of a tensor with its checksum, once. Throws CheckpointError.
  void check_storage(const PickleValue& value, const std::string& name);
  // Row `row`, columns [col, col + out.size()), of a matrix, or elements of a vector (row 0), in
  // fp32. Dimensions before these are 1. REQUIRES: check_storage().
  void read_row(const PickleValue& value, std::int64_t row, std::int64_t col,
                std::span<float> out) const;
  // The one element of a tensor: fp32, fp64, bf16, fp16, int32 or int64. Throws CheckpointError
  // where it is not one, or something else. REQUIRES: check_storage().
  [[nodiscard]] double read_number(const PickleValue& value, const std::string& name) const;
  // What was read counts no longer as this process's memory.
  void let_go(const PickleValue& value) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same of bytes that are all of a file: what TorchFile does before it is asked for a tensor.
struct TorchContents {
  PickleTree tree;
  struct Place {
    std::int64_t offset = 0, bytes = 0;
    std::uint32_t crc = 0;
  };
  std::vector<Place> storages;  // of tree.storages
};
[[nodiscard]] TorchContents parse_torch_file(std::span<const std::byte> file,
                                             const std::string& path);

}  // namespace sluice
