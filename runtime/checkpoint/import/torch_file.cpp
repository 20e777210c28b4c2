#include "runtime/checkpoint/import/torch_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "base/posix/map.hpp"
#include "runtime/checkpoint/hf/widen.hpp"
#include "runtime/checkpoint/import/zip_file.hpp"

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(std::span<const std::byte> file, std::int64_t offset,
                                    std::int64_t bytes) {
  return file.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
}

// Refuses files of torch.save before 1.6 and of pickle.dump, which begin with a pickle.
void refuse_bare_pickle(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < 2 || file[0] != std::byte{0x80}) return;
  throw CheckpointError(
      "is a bare pickle, not the zip that torch.save writes since torch 1.6; load it there and "
      "save "
      "it again",
      path, "", 0);
}

// Entries by name, without the folder that contains all of them.
using ByName = std::unordered_map<std::string, const ZipEntry*>;
ByName by_name(const std::vector<ZipEntry>& entries, const std::string& path) {
  ByName found;
  std::string folder;
  for (const ZipEntry& entry : entries) {
    const std::size_t slash = entry.name.find('/');
    const std::string top = entry.name.substr(0, slash == std::string::npos ? 0 : slash + 1);
    if (found.empty()) folder = top;
    if (top.empty() || top != folder) {
      throw CheckpointError("has " + entry.name + " beside the one folder of torch.save", path, "",
                            entry.offset);
    }
    found.emplace(entry.name.substr(top.size()), &entry);
  }
  return found;
}

void check_crc(std::span<const std::byte> bytes, std::uint32_t crc, const std::string& path,
               const std::string& name, std::int64_t offset) {
  if (crc == 0) return;  // the writer gave no checksum
  // Releases each piece after use, so that a large storage is never resident as a whole.
  constexpr std::size_t kPiece = std::size_t{8} << 20U;
  std::uint32_t found = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    found = crc32(piece, found);
    if (bytes.size() > kPiece) let_go(piece);
  }
  if (found == crc) return;
  throw CheckpointError(
      format_text("the {} bytes from here are not what was written: their checksum is wrong",
                  bytes.size()),
      path, name, offset);
}

}  // namespace

TorchContents parse_torch_file(std::span<const std::byte> file, const std::string& path) {
  refuse_bare_pickle(file, path);
  const std::vector<ZipEntry> entries = parse_zip(file, path);
  const ByName names = by_name(entries, path);
  const auto order = names.find("byteorder");
  if (order != names.end()) {
    const auto bytes = bytes_of(file, order->second->offset, order->second->bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text != "little") {
      throw CheckpointError("is not little-endian", path, "", order->second->offset);
    }
  }
  const auto pickle = names.find("data.pkl");
  if (pickle == names.end()) {
    throw CheckpointError("has no data.pkl: it is not of torch.save", path, "", 0);
  }
  const ZipEntry& data = *pickle->second;
  const auto bytes = bytes_of(file, data.offset, data.bytes);
  check_crc(bytes, data.crc, path, "", data.offset);
  TorchContents contents{parse_pickle(bytes, path, data.offset), {}};
  for (const PickleStorage& storage : contents.tree.storages) {
    const auto at = names.find("data/" + storage.key);
    const std::int64_t expected = storage.elems * size_of(storage.dtype);
    if (at == names.end() || at->second->bytes != expected) {
      throw CheckpointError(
          at == names.end()
              ? "names the storage " + storage.key + " and has no data/" + storage.key
              : format_text("has data/{} of {} bytes, not the {} that its pickle says", storage.key,
                            at->second->bytes, expected),
          path, "", data.offset);
    }
    contents.storages.push_back({at->second->offset, expected, at->second->crc});
  }
  return contents;
}

struct TorchFile::Impl {
  Impl(std::shared_ptr<const MappedFile> mapped, std::span<const std::byte> part, std::string name)
      : file(std::move(mapped)),
        bytes(part),
        path(std::move(name)),
        contents(parse_torch_file(bytes, path)) {
    checked.resize(contents.storages.size());
  }
  [[nodiscard]] const PickleTensor& tensor(const PickleValue& value) const {
    check(value.kind == PickleValue::Kind::kTensor, "a tensor of a pickle");
    return nth(contents.tree.tensors, value.number);
  }
  [[nodiscard]] std::span<const std::byte> storage(const PickleTensor& tensor) const {
    const TorchContents::Place& place = contents.storages[tensor.storage];
    return bytes_of(bytes, place.offset, place.bytes);
  }

  std::shared_ptr<const MappedFile> file;
  std::span<const std::byte> bytes;  // in `file`
  std::string path;
  TorchContents contents;
  std::vector<bool> checked;  // by storage
};

TorchFile::TorchFile(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> all = file->bytes();
  impl_ = std::make_unique<Impl>(std::move(file), all, path);
}
TorchFile::TorchFile(std::shared_ptr<const MappedFile> file, std::int64_t offset,
                     std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(file->bytes().size());
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) {
    throw CheckpointError(format_text("ends before the {} bytes that its index names", bytes),
                          file->path(), "", offset);
  }
  const std::string path = format_text("{} (from byte {})", file->path(), offset);
  const std::span<const std::byte> part = bytes_of(file->bytes(), offset, bytes);
  impl_ = std::make_unique<Impl>(std::move(file), part, path);
}
TorchFile::~TorchFile() = default;
TorchFile::TorchFile(TorchFile&& other) noexcept = default;
TorchFile& TorchFile::operator=(TorchFile&& other) noexcept = default;

const std::string& TorchFile::path() const { return impl_->path; }
const PickleTree& TorchFile::tree() const { return impl_->contents.tree; }

const PickleTensor& TorchFile::tensor(const PickleValue& value) const {
  return impl_->tensor(value);
}

DType TorchFile::dtype(const PickleValue& value, const std::string& name) const {
  const TensorDType stored = tree().storages[impl_->tensor(value).storage].dtype;
  if (const auto dtype = compute_dtype(stored)) return *dtype;
  throw CheckpointError(
      "is stored as " + std::string(name_of(stored)) + "; weights are read from F32, BF16 and F16",
      path(), name, value.at);
}

void TorchFile::check_storage(const PickleValue& value, const std::string& name) {
  const PickleTensor& tensor = impl_->tensor(value);
  if (impl_->checked[tensor.storage]) return;
  const TorchContents::Place& place = impl_->contents.storages[tensor.storage];
  check_crc(impl_->storage(tensor), place.crc, path(), name, place.offset);
  impl_->checked[tensor.storage] = true;
}

void TorchFile::read_row(const PickleValue& value, std::int64_t row, std::int64_t col,
                         std::span<float> out) const {
  const PickleTensor& tensor = impl_->tensor(value);
  const auto type = compute_dtype(tree().storages[tensor.storage].dtype);
  const std::size_t dims = tensor.shape.size();
  check(dims > 0 && std::all_of(tensor.shape.begin(),
                                tensor.shape.end() -
                                    std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(dims)),
                                [](std::int64_t dim) { return dim == 1; }),
        "a matrix of weights");
  const std::int64_t rows = dims > 1 ? tensor.shape[dims - 2] : 1;
  check(row >= 0 && row < rows && col >= 0 &&
            static_cast<std::int64_t>(out.size()) <= tensor.shape.back() - col,
        "elements within their tensor");
  if (!type) throw Error(path() + ": a tensor of weights is read whose dtype was not looked at");
  const std::int64_t stride = tensor.strides.back();
  const std::int64_t first =
      tensor.offset + (dims > 1 ? row * tensor.strides[dims - 2] : 0) + col * stride;
  const std::byte* const stored = impl_->storage(tensor).data();
  if (stride == 1) return widen(stored, *type, first, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    widen(stored, *type, first + static_cast<std::int64_t>(i) * stride, out.subspan(i, 1));
  }
}

double TorchFile::read_number(const PickleValue& value, const std::string& name) const {
  const PickleTensor& tensor = impl_->tensor(value);
  const bool one = std::all_of(tensor.shape.begin(), tensor.shape.end(),
                               [](std::int64_t dim) { return dim == 1; });
  if (!one) throw CheckpointError("is not one number", path(), name, value.at);
  const TensorDType type = tree().storages[tensor.storage].dtype;
  const std::byte* const stored = impl_->storage(tensor).data();
  const auto as = [&]<class T>(T number) {
    std::memcpy(&number, stored + tensor.offset * static_cast<std::int64_t>(sizeof number),
                sizeof number);
    return static_cast<double>(number);
  };
  if (type == TensorDType::kF64) return as(double{});
  if (type == TensorDType::kI64) return as(std::int64_t{});
  if (type == TensorDType::kI32) return as(std::int32_t{});
  float number = 0;
  widen(stored, dtype(value, name), tensor.offset, {&number, 1});
  return number;
}

void TorchFile::let_go(const PickleValue& value) const {
  sluice::let_go(impl_->storage(impl_->tensor(value)));
}

void TorchFile::let_go(const PickleValue& value, std::int64_t from, std::int64_t elems) const {
  const PickleTensor& tensor = impl_->tensor(value);
  if (tensor.strides.at(0) != 1) return let_go(value);
  const std::int64_t size = size_of(tree().storages[tensor.storage].dtype);
  sluice::let_go(bytes_of(impl_->storage(tensor), (tensor.offset + from) * size, elems * size));
}

}  // namespace sluice
