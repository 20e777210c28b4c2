#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/checkpoint/io/staged_file.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kStagingBytes = 4 * kMiB;     // size of one write call
constexpr std::int64_t kWritebackBytes = 16 * kMiB;  // a disk takes a few hundredths of a second

// The written bytes of one tensor, as disjoint intervals. Adjacent intervals are joined.
class WrittenBytes {
 public:
  // Returns false if a part of [begin, end) was written before.
  bool add(std::int64_t begin, std::int64_t end) {
    if (begin == end) return true;
    auto next = ends_.lower_bound(begin);
    if (next != ends_.end() && next->first < end) return false;
    if (next != ends_.begin()) {
      const auto before = std::prev(next);
      if (before->second > begin) return false;
      if (before->second == begin) {
        begin = before->first;
        ends_.erase(before);
      }
    }
    if (next != ends_.end() && next->first == end) {
      end = next->second;
      ends_.erase(next);
    }
    ends_[begin] = end;
    return true;
  }
  // Offset of the first missing byte; the tensor's size if no byte is missing.
  [[nodiscard]] std::int64_t whole_until() const {
    return ends_.empty() || ends_.begin()->first > 0 ? 0 : ends_.begin()->second;
  }

 private:
  std::map<std::int64_t, std::int64_t> ends_;  // begin -> end
};

}  // namespace

struct SafetensorsWriter::Impl {
  Impl(FileSystem& files, const std::string& file, SafetensorsLayout plan)
      : path(file),
        layout(std::move(plan)),
        written(layout.tensors.size()),
        out(files, path, kStagingBytes, kWritebackBytes) {}
  std::string path;
  SafetensorsLayout layout;
  std::vector<WrittenBytes> written;
  StagedFile out;
};

SafetensorsWriter::SafetensorsWriter(FileSystem& files, const std::string& path,
                                     std::span<const TensorDecl> tensors, const TextMap& metadata)
    : impl_(std::make_unique<Impl>(files, path, plan_safetensors(tensors, metadata))) {
  impl_->out.write(0, std::as_bytes(std::span(impl_->layout.header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept = default;

const SafetensorsLayout& SafetensorsWriter::layout() const { return impl_->layout; }

void SafetensorsWriter::write(std::size_t tensor, std::int64_t offset,
                              std::span<const std::byte> bytes) {
  check(tensor < impl_->layout.tensors.size(), "a declared tensor");
  const TensorEntry& entry = impl_->layout.tensors[tensor];
  const auto length = static_cast<std::int64_t>(bytes.size());
  if (offset < 0 || offset > entry.bytes || length > entry.bytes - offset) {
    throw Error(format_text("bytes [{}, {}) are not all in tensor {} of {}, which has {}", offset,
                            offset + length, entry.name, impl_->path, entry.bytes));
  }
  if (!impl_->written[tensor].add(offset, offset + length)) {
    throw Error(format_text("bytes [{}, {}) of tensor {} of {} are written twice", offset,
                            offset + length, entry.name, impl_->path));
  }
  impl_->out.write(entry.offset + offset, bytes);
}

void SafetensorsWriter::finish() {
  for (std::size_t i = 0; i < impl_->written.size(); ++i) {
    const TensorEntry& entry = impl_->layout.tensors[i];
    const std::int64_t until = impl_->written[i].whole_until();
    if (until < entry.bytes) {
      throw Error(format_text("tensor {} of {} was not written from byte {} on", entry.name,
                              impl_->path, until));
    }
  }
  impl_->out.sync();
}

}  // namespace sluice
