#include "runtime/checkpoint/format/safetensors.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/posix/map.hpp"

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
  explicit Mapped(const std::string& path) : file(path) {}

  MappedFile file;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const TensorEntry*> by_name;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : mapped_(std::make_unique<Mapped>(path)) {
  Mapped& file = *mapped_;
  const std::span<const std::byte> bytes = file.file.bytes();
  file.header = parse_safetensors_header(bytes, static_cast<std::int64_t>(bytes.size()), path);
  file.by_name.reserve(file.header.tensors.size());
  for (const TensorEntry& entry : file.header.tensors) file.by_name[entry.name] = &entry;
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept = default;

const std::string& SafetensorsFile::path() const { return mapped_->file.path(); }
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
  return mapped_->file.bytes().subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.bytes));
}

}  // namespace sluice
