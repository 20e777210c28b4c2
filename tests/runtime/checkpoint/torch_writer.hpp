// Files as torch.save writes them, byte for byte enough for any reader of its own: for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::testing {

struct WrittenTensor {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // empty: row-major
  std::span<const float> values;      // the storage
};

// The opcodes of one value.
[[nodiscard]] std::string pickled_text(const std::string& text);
[[nodiscard]] std::string pickled_int(std::int32_t value);
// `key`: of its storage.
[[nodiscard]] std::string pickled_tensor(const WrittenTensor& tensor, const std::string& key);

// A zip of stored entries; with zip64 records where asked for, as torch writes them.
struct ZipPart {
  std::string name, bytes;
};
[[nodiscard]] std::string zipped(const std::vector<ZipPart>& parts, bool zip64 = true);

// PROTO 2, `body`, STOP as data.pkl, with its storages data/0, data/1, ...
[[nodiscard]] std::string torch_file(const std::string& body,
                                     const std::vector<std::span<const float>>& storages = {});
// torch.save({'param': tensor}), or of the tensor alone.
[[nodiscard]] std::string torch_state(const WrittenTensor& tensor, bool in_dictionary = true);

}  // namespace sluice::testing
