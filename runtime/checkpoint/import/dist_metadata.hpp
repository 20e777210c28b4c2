// The `.metadata` file of torch.distributed.checkpoint: the tensors, and for each rectangle of a
// tensor the .distcp file and its bytes. The bytes of a rectangle are a file of torch.save.
// `.metadata` is a pickle, which is read as data. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

struct DistChunk {
  std::vector<std::int64_t> offsets, sizes;  // in the tensor, one value per dimension
  std::string file;                          // file name in the same folder
  std::int64_t offset = 0, bytes = 0;        // in the file
};

struct DistTensor {
  std::vector<std::int64_t> shape;
  std::vector<DistChunk> chunks;
  std::int64_t at = 0;  // byte offset in .metadata, for messages
};

// Returns the tensors by key. Throws CheckpointError for another kind of pickle, a chunk without a
// file or beyond its tensor, compressed bytes, and a file name that leaves the folder.
[[nodiscard]] std::map<std::string, DistTensor> parse_dist_metadata(
    std::span<const std::byte> pickle, const std::string& path);

}  // namespace sluice
