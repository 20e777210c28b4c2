#include "offload/swap_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/io_error.hpp"
#include "offload/io_backend.hpp"
#include "offload/text_field.hpp"

namespace sluice {
namespace {

constexpr char kSwapMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'S', 'W'};

// The header in the file, little-endian. The rest of the header block is zero.
struct RawHeader {
  char magic[8];
  std::uint32_t format, rank, file, files, pid, image;
  std::uint64_t layout_hash, reserved, file_bytes;
  char run_id[128];
  char host[64];
  std::uint64_t hash;  // FNV-1a of all fields before
};
static_assert(sizeof(RawHeader) == 256 && std::is_trivially_copyable_v<RawHeader>);

std::uint64_t fnv(const void* data, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3U;
  return hash;
}

struct FreeAligned {
  void operator()(std::byte* memory) const {
    ::operator delete (memory, std::align_val_t{kSwapHeaderBytes});
  }
};
using HeaderBlock = std::unique_ptr<std::byte, FreeAligned>;

HeaderBlock make_block() {
  return HeaderBlock(static_cast<std::byte*>(
      ::operator new (kSwapHeaderBytes, std::align_val_t{kSwapHeaderBytes})));
}

void reserve(int descriptor, const std::string& path, std::int64_t bytes) {
  int error = injected_errno("nvme.fallocate", ENOSPC);
  while (error == 0 && ::fallocate(descriptor, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    error = errno;
  }
  if (error == EOPNOTSUPP) {
    log_warning("the file system of " + path +
                " cannot reserve space: the run ends when it fills up");
    error = ::ftruncate(descriptor, bytes) != 0 ? errno : 0;
  }
  if (error == 0) return;
  throw_io_error("reserve " + format_bytes(bytes) + " for the NVMe tier in", path, error);
}

// True if bytes were written behind the header. Space that is only reserved does not count. If the
// file system cannot tell (no SEEK_DATA), any file longer than its header counts as written.
bool has_data_behind(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size <= kSwapHeaderBytes) return false;
  return ::lseek(descriptor, kSwapHeaderBytes, SEEK_DATA) >= 0 || errno != ENXIO;
}

}  // namespace

void encode_header(const SwapHeader& header, std::byte* block) {
  RawHeader raw{};
  std::memcpy(raw.magic, kSwapMagic, sizeof(kSwapMagic));
  raw.format = kSwapFormat;
  raw.rank = header.rank;
  raw.file = header.file;
  raw.files = header.files;
  raw.pid = header.pid;
  raw.layout_hash = header.layout_hash;
  raw.file_bytes = header.file_bytes;
  raw.image = header.image ? 1 : 0;
  put_text(raw.run_id, header.run_id);
  put_text(raw.host, header.host);
  raw.hash = fnv(&raw, offsetof(RawHeader, hash));
  std::memset(block, 0, kSwapHeaderBytes);
  std::memcpy(block, &raw, sizeof(raw));
}

std::optional<SwapHeader> decode_header(const std::byte* block) {
  RawHeader raw;
  std::memcpy(&raw, block, sizeof(raw));
  if (std::memcmp(raw.magic, kSwapMagic, sizeof(kSwapMagic)) != 0 || raw.format != kSwapFormat ||
      raw.hash != fnv(&raw, offsetof(RawHeader, hash))) {
    return std::nullopt;
  }
  return SwapHeader{
      get_text(raw.run_id), get_text(raw.host), raw.pid,       raw.rank, raw.file, raw.files,
      raw.layout_hash,      raw.file_bytes,     raw.image != 0};
}

SwapKind inspect_swap_file(const std::string& path, std::optional<SwapHeader>* header) {
  header->reset();
  const Descriptor file = open_descriptor(path, O_RDONLY | O_NOFOLLOW);
  if (!file) throw_io_error("look into", path, errno);
  std::byte block[kSwapHeaderBytes] = {};
  const auto got = ::pread(file.get(), block, sizeof(block), 0);
  const int error = errno;
  const bool has_more = got == kSwapHeaderBytes && has_data_behind(file.get());
  if (got < 0) throw_io_error("read", path, error);
  if (got == kSwapHeaderBytes) *header = decode_header(block);
  if (header->has_value()) return SwapKind::kOurs;
  const bool zero = std::all_of(block, block + got, [](std::byte b) { return b == std::byte{0}; });
  if (zero) return has_more ? SwapKind::kDamaged : SwapKind::kUnwritten;
  const bool magic = got >= 8 && std::memcmp(block, kSwapMagic, sizeof(kSwapMagic)) == 0;
  return magic ? SwapKind::kDamaged : SwapKind::kForeign;
}

SwapFile::SwapFile(std::string path, bool direct, Open how)
    : path_(std::move(path)), direct_(direct) {
  const bool creates = how == Open::kCreate;
  const char* const action = creates ? "create" : "open";
  const int flags = O_RDWR | O_NOFOLLOW | (creates ? O_CREAT | O_EXCL : 0);
  if (const int error = injected_errno("nvme.open", EIO)) throw_io_error(action, path_, error);
  int error = direct ? injected_errno("nvme.open.direct", EINVAL) : 0;
  if (error == 0) {
    descriptor_ = open_descriptor(path_, flags | (direct ? O_DIRECT : 0), 0600);
    error = descriptor_ ? 0 : errno;
  }
  if (error == 0) return;
  if (!direct || error != EINVAL) throw_io_error(action, path_, error);
  if (creates) ::unlink(path_.c_str());  // some file systems create the file, then refuse the flag
  throw IoError("the file system of " + path_ +
                    " does not do O_DIRECT: put offload.nvme_path on ext4, xfs or another file "
                    "system of a local disk",
                path_, error);
}

void SwapFile::prepare(const SwapHeader& header, std::int64_t bytes) {
  write_header(header);
  reserve(descriptor_.get(), path_, bytes);
}

void SwapFile::write_header(const SwapHeader& header) {
  const HeaderBlock block = make_block();
  encode_header(header, block.get());
  if (const int error = injected_errno("nvme.header", EIO))
    throw_io_error("write to", path_, error);
  std::int64_t offset = 0;
  const int error = write_fully_at(descriptor_.get(), {block.get(), kSwapHeaderBytes}, offset);
  if (error != 0) throw_io_error("write to", path_, error);
}

SwapHeader SwapFile::read_header() const {
  const HeaderBlock block = make_block();
  if (const int error = injected_errno("nvme.header", EIO)) throw_io_error("read", path_, error);
  const auto got = ::pread(descriptor_.get(), block.get(), kSwapHeaderBytes, 0);
  if (got < 0) throw_io_error("read", path_, errno);
  const auto header = got == kSwapHeaderBytes ? decode_header(block.get()) : std::nullopt;
  if (!header) throw IoError(path_ + " does not begin with a whole header", path_);
  return *header;
}

std::int64_t SwapFile::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) throw_io_error("look at", path_, errno);
  return status.st_size;
}

void SwapFile::remove() noexcept {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    log_warning("cannot remove " + path_ + ": " + std::strerror(errno));
  }
}

}  // namespace sluice
