// A tensor of another program's checkpoint: as one file has it, or in rectangles of several files
// (torch_dist). Values of one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

// A vector is one row. Dimensions before the last two are 1.
struct TensorPiece {
  std::shared_ptr<TorchFile> file;
  const PickleValue* value = nullptr;  // kTensor; lives with the file
  std::int64_t row = 0, col = 0;       // of the tensor, where the piece begins
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t cols() const;
};

class OpenTensor {
 public:
  // As its file has it.
  OpenTensor(std::string name, std::shared_ptr<TorchFile> file, const PickleValue& value);
  // Throws CheckpointError where the pieces leave a hole, overlap, or reach beyond `shape`, which
  // has one or two dimensions.
  OpenTensor(std::string name, std::vector<std::int64_t> shape, std::vector<TensorPiece> pieces);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  // With file, tensor and byte.
  [[nodiscard]] CheckpointError error(const std::string& what) const;

  // Throws CheckpointError where it is stored as something else than fp32, bf16 or fp16.
  void check_dtype() const;
  // Compares what it is stored in with its checksums, once a storage. Throws CheckpointError.
  void check_storage() const;
  // Row `row`, columns [col, col + out.size()), of a matrix, or elements of a vector (row 0), in
  // fp32. REQUIRES: check_storage().
  void read_row(std::int64_t row, std::int64_t col, std::span<float> out) const;
  // What was read counts no longer as this process's memory.
  void let_go() const;

  bool unpadded = false;  // a vocabulary whose padding was taken off already

 private:
  std::string name_;
  std::vector<std::int64_t> shape_;
  std::vector<TensorPiece> pieces_;
};

}  // namespace sluice
