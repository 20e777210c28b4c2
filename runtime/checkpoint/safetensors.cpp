#include "runtime/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.hpp"

namespace sluice {
namespace {

struct DTypeRow {
  TensorDType dtype;
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kDTypes{
    DTypeRow{TensorDType::kF64, "F64", 8}, DTypeRow{TensorDType::kF32, "F32", 4},
    DTypeRow{TensorDType::kF16, "F16", 2}, DTypeRow{TensorDType::kBF16, "BF16", 2},
    DTypeRow{TensorDType::kI64, "I64", 8}, DTypeRow{TensorDType::kI32, "I32", 4},
    DTypeRow{TensorDType::kI16, "I16", 2}, DTypeRow{TensorDType::kI8, "I8", 1},
    DTypeRow{TensorDType::kU8, "U8", 1},   DTypeRow{TensorDType::kBool, "BOOL", 1},
};

const DTypeRow& row_of(TensorDType dtype) {
  const auto* const row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                       [&](const DTypeRow& r) { return r.dtype == dtype; });
  check(row != kDTypes.end(), "a tensor dtype");
  return *row;
}

// Maps the file whole; an empty one has no mapping.
std::span<const std::byte> map_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot open " + path + ": " + std::strerror(errno), path, errno);
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (error == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  void* begin = nullptr;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (error == 0 && bytes > 0) {
    begin = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (begin == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) {
    throw IoError("cannot map " + path + ": " + std::strerror(error), path, error);
  }
  return {static_cast<const std::byte*>(begin), begin == nullptr ? 0 : bytes};
}

}  // namespace

std::int64_t size_of(TensorDType dtype) { return row_of(dtype).bytes; }
std::string_view name_of(TensorDType dtype) { return row_of(dtype).name; }

std::optional<TensorDType> parse_tensor_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

TensorDType tensor_dtype(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return TensorDType::kBF16;
    case DType::kFloat16:
      return TensorDType::kF16;
    case DType::kFloat32:
      break;
  }
  return TensorDType::kF32;
}

std::optional<DType> compute_dtype(TensorDType dtype) {
  if (dtype == TensorDType::kF32) return DType::kFloat32;
  if (dtype == TensorDType::kBF16) return DType::kBFloat16;
  if (dtype == TensorDType::kF16) return DType::kFloat16;
  return std::nullopt;
}

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const TensorEntry& entry) { return entry.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

struct SafetensorsFile::Mapped {
  explicit Mapped(const std::string& file) : path(file), bytes(map_file(file)) {}
  ~Mapped() {
    if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  std::string path;
  std::span<const std::byte> bytes;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const TensorEntry*> by_name;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : mapped_(std::make_unique<Mapped>(path)) {
  Mapped& file = *mapped_;
  file.header =
      parse_safetensors_header(file.bytes, static_cast<std::int64_t>(file.bytes.size()), path);
  file.by_name.reserve(file.header.tensors.size());
  for (const TensorEntry& entry : file.header.tensors) file.by_name[entry.name] = &entry;
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept = default;

const std::string& SafetensorsFile::path() const { return mapped_->path; }
const std::vector<TensorEntry>& SafetensorsFile::tensors() const { return mapped_->header.tensors; }
const TextMap& SafetensorsFile::metadata() const { return mapped_->header.metadata; }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = mapped_->by_name.find(name);
  return at == mapped_->by_name.end() ? nullptr : at->second;
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  const TensorEntry* const entry = find(name);
  if (entry == nullptr) {
    throw CheckpointError("the file holds no tensor of this name", path(), std::string(name));
  }
  return *entry;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  return mapped_->bytes.subspan(static_cast<std::size_t>(tensor.offset),
                                static_cast<std::size_t>(tensor.bytes));
}

}  // namespace sluice
