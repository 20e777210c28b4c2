// A tensor of another program's checkpoint: in one file, in rectangles of several files
// (torch_dist), or in runs of its elements (ZeRO's shards). Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"

namespace sluice {

// A rectangle of a tensor. A vector is one row. Dimensions before the last two are 1.
struct TensorPiece {
  std::shared_ptr<TorchFile> file;
  const PickleValue* value = nullptr;  // kTensor; lives as long as the file
  std::int64_t row = 0, col = 0;       // position of the piece in the tensor
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t cols() const;
};

// A run of a tensor's elements in row-major order: elements [from, from + elems) of a stored
// vector.
struct TensorRun {
  std::shared_ptr<TorchFile> file;
  const PickleValue* value = nullptr;  // kTensor with one dimension; lives as long as the file
  std::int64_t from = 0, elems = 0;
};

class OpenTensor {
 public:
  // A tensor in one file.
  OpenTensor(std::string name, std::shared_ptr<TorchFile> file, const PickleValue& value);
  // A tensor in several pieces. Throws CheckpointError if the pieces leave a hole, overlap, or
  // exceed `shape`. REQUIRES: one or two dimensions.
  OpenTensor(std::string name, std::vector<std::int64_t> shape, std::vector<TensorPiece> pieces);
  // A tensor whose runs follow one another. REQUIRES: the runs are not empty, lie within their
  // vectors, and have as many elements as `shape`.
  OpenTensor(std::string name, std::vector<std::int64_t> shape, const std::vector<TensorRun>& runs);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  // An error that names file, tensor and byte.
  [[nodiscard]] CheckpointError error(const std::string& what) const;

  // Throws CheckpointError unless the dtype is fp32, bf16 or fp16.
  void check_dtype() const;
  // Compares the storages with their checksums, each storage once. Throws CheckpointError.
  void check_storage() const;
  // Reads columns [col, col + out.size()) of row `row` in fp32; a vector has row 0 only. REQUIRES:
  // check_storage() was called.
  void read_row(std::int64_t row, std::int64_t col, std::span<float> out) const;
  // Releases the pages that were read from this process's resident memory.
  void let_go() const;

  bool unpadded = false;  // a vocabulary without padding

 private:
  struct PlacedRun {
    TensorRun run;
    std::int64_t at = 0;  // number of elements before the run
  };
  void read_runs(std::int64_t begin, std::span<float> out) const;

  std::string name_;
  std::vector<std::int64_t> shape_;
  std::vector<TensorPiece> pieces_;  // or
  std::vector<PlacedRun> runs_;
};

}  // namespace sluice
