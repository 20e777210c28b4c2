// safetensors files: 8 bytes of header length, a JSON header, and the tensors' bytes without a gap,
// little-endian and row-major.
//
// The reader is strict. It refuses a header over 100 MB, a duplicate key, a hole, an overlap, a
// size that does not follow from shape and dtype, and a wrong file length. It also refuses dtypes
// that Sluice does not use (8-bit floats, unsigned 16 to 64 bits).
//
// Errors in contents are CheckpointError (file, tensor, offset); errors of the system are IoError.
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
[[nodiscard]] std::string_view name_of(TensorDType dtype);  // the name in files, such as "BF16"
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
  std::int64_t offset = 0;  // of the first byte in the file
  std::int64_t bytes = 0;
};

// The checked contents of a header.
struct SafetensorsHeader {
  std::int64_t header_bytes = 0;     // includes the 8 bytes of length: offset of the first tensor
  std::vector<TensorEntry> tensors;  // by offset
  TextMap metadata;
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;  // or nullptr; linear search
};

// `begin`: the first bytes of the file, with at least the whole header. `path` is for messages.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> begin,
                                                         std::int64_t file_bytes,
                                                         const std::string& path);

// The header and the tensor offsets of a file that is to be written. Tensors are ordered by falling
// element size, then by declaration, so that each tensor is aligned to its element size.
struct SafetensorsLayout {
  std::string header;                // includes the 8 bytes of length
  std::vector<TensorEntry> tensors;  // in the order declared
  std::int64_t file_bytes = 0;
};
// Throws Error for a duplicate name, a negative dimension, or a header over the limit.
[[nodiscard]] SafetensorsLayout plan_safetensors(std::span<const TensorDecl> tensors,
                                                 const TextMap& metadata);

// A file that is mapped read-only and checked. Thread-safe after construction. If another process
// truncates the file while it is mapped, an access raises SIGBUS. Sluice never truncates: it
// replaces checkpoints by rename.
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

// Creates or replaces a file and writes the header. The caller then writes every byte once, in any
// order; small writes are gathered into large ones. Not thread-safe. Without finish() the file is
// not whole.
class SafetensorsWriter {
 public:
  SafetensorsWriter(FileSystem& files, const std::string& path, std::span<const TensorDecl> tensors,
                    const TextMap& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;

  // Writes `bytes` at `offset` of tensor number `tensor`, in declaration order. Throws Error if
  // they exceed the tensor or were written before.
  void write(std::size_t tensor, std::int64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] const SafetensorsLayout& layout() const;
  // Syncs the file, but not its directory. Throws Error, which names the first tensor with missing
  // bytes.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
