// safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes without a gap,
// little-endian and row-major. The reader is strict: a header over 100 MB, a key twice, a hole, an
// overlap, a size that does not follow from shape and dtype, or a file of another length is an
// error, as is a dtype that Sluice has no use for (8-bit floats, unsigned 16 to 64 bits).
//
// Errors are CheckpointError (file, tensor, offset) for contents and IoError for the system's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {

class FileSystem;

enum class TensorDType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool
};
[[nodiscard]] std::int64_t size_of(TensorDType dtype);
[[nodiscard]] std::string_view name_of(TensorDType dtype);  // "BF16", as in files
[[nodiscard]] std::optional<TensorDType> parse_tensor_dtype(std::string_view name);
[[nodiscard]] TensorDType tensor_dtype(DType dtype);
[[nodiscard]] std::optional<DType> compute_dtype(TensorDType dtype);  // F32, BF16, F16

inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

using TextMap = std::map<std::string, std::string>;

struct TensorDecl {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<std::int64_t> shape;  // {}: a scalar
};

struct TensorEntry {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of the first byte, in the file
  std::int64_t bytes = 0;
};

// What a header says, checked.
struct SafetensorsHeader {
  std::int64_t header_bytes = 0;     // with the length in front: where the tensors begin
  std::vector<TensorEntry> tensors;  // by offset
  TextMap metadata;
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;  // nullptr: none; linear
};

// `begin`: the file's first bytes, the whole header at least. `path` is for messages.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> begin,
                                                         std::int64_t file_bytes,
                                                         const std::string& path);

// A file's header and places before it is written. Tensors lie by falling element size, those of
// one size in the order declared, so that each is aligned to its element.
struct SafetensorsLayout {
  std::string header;                // with the length in front
  std::vector<TensorEntry> tensors;  // in the order declared
  std::int64_t file_bytes = 0;
};
// Throws Error for a name twice, a negative dimension, or a header over the limit.
[[nodiscard]] SafetensorsLayout plan_safetensors(std::span<const TensorDecl> tensors,
                                                 const TextMap& metadata);

// A file mapped read-only and checked. Thread-safe after construction. A file that somebody cuts
// short while it is mapped raises SIGBUS: checkpoints are replaced by rename, never truncated.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const std::vector<TensorEntry>& tensors() const;
  [[nodiscard]] const TextMap& metadata() const;
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;  // nullptr: none
  [[nodiscard]] const TensorEntry& at(std::string_view name) const;    // throws CheckpointError
  [[nodiscard]] std::span<const std::byte> bytes(const TensorEntry& tensor) const;

 private:
  struct Mapped;
  std::unique_ptr<Mapped> mapped_;
};

// Creates the file (replacing one of that name), writes the header, then bytes in any order, each
// once, staged into large writes. Not thread-safe. Without finish() the file is not whole.
class SafetensorsWriter {
 public:
  SafetensorsWriter(FileSystem& files, const std::string& path, std::span<const TensorDecl> tensors,
                    const TextMap& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;

  // `bytes` at `offset` within tensor number `tensor`, as declared. Throws Error where they reach
  // past its end or were written before.
  void write(std::size_t tensor, std::int64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] const SafetensorsLayout& layout() const;
  // Throws Error naming the first tensor with bytes missing; syncs the file (not its directory).
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
