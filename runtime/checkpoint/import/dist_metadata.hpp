// The `.metadata` of a checkpoint of torch.distributed.checkpoint: which tensors there are, and in
// which bytes of which .distcp file each rectangle of one lies, as a file of torch.save. A pickle,
// read as data. Pure.
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
  std::vector<std::int64_t> offsets, sizes;  // in the tensor; as many as it has dimensions
  std::string file;                          // a name in the same folder
  std::int64_t offset = 0, bytes = 0;        // in the file
};

struct DistTensor {
  std::vector<std::int64_t> shape;
  std::vector<DistChunk> chunks;
  std::int64_t at = 0;  // in .metadata
};

// By key. Throws CheckpointError where it is no such metadata, a chunk has no place or lies beyond
// its tensor, bytes are compressed, or a file is not a name in this folder.
[[nodiscard]] std::map<std::string, DistTensor> parse_dist_metadata(
    std::span<const std::byte> pickle, const std::string& path);

}  // namespace sluice
