#include "parallel/comm/host/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr char kName[] = "sluice-memory";

struct Table {
  std::mutex mutex;
  std::uint64_t last_id = 0;
  std::vector<HostRegion> regions;
};

Table& table() {
  static Table blocks;
  return blocks;
}

[[noreturn]] void refuse(std::int64_t bytes, int error) {
  throw IoError("cannot make " + std::to_string(bytes) +
                    " bytes of memory that other ranks can map: " + std::strerror(error) +
                    "; free memory or use fewer ranks on this host",
                "memfd", error);
}

}  // namespace

HostMemory::HostMemory(std::int64_t bytes) {
  check(bytes > 0, "a block of shared memory has a size");
  file_ = make_memfd(kName, bytes);
  if (file_) pages_ = MappedPages::shared(file_.get(), bytes, /*writable=*/true);
  if (!pages_) refuse(bytes, errno);
  // Has an effect if the machine permits huge pages for shared memory (shmem_enabled: advise).
  madvise(data(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  const std::lock_guard lock(table().mutex);
  table().regions.push_back({++table().last_id, file_.get(), data(), bytes});
}

HostMemory::~HostMemory() {
  if (!pages_) return;
  {
    const std::lock_guard lock(table().mutex);
    std::erase_if(table().regions, [this](const HostRegion& r) { return r.begin == data(); });
  }
  const std::int64_t bytes = pages_.bytes();
  pages_ = MappedPages();
  // Punches a hole instead of truncating: a peer whose operation has failed may still read, and
  // would get SIGBUS beyond the end.
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes);
}

Descriptor open_memfd_of(std::int32_t process, std::int32_t fd, int flags, const char* name,
                         std::int64_t bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
  // The kernel's link text of a memfd. After opening, the file is checked to have no links.
  std::array<char, 64> link{};
  if (readlink(path.c_str(), link.data(), link.size() - 1) < 0) return {};
  const std::string wanted = std::string("/memfd:") + name + " (deleted)";
  // O_NONBLOCK: a pipe or a device under this number must not block the rank.
  Descriptor own;
  errno = EPERM;
  if (link.data() == wanted) own = open_descriptor(path, flags | O_NONBLOCK);
  if (!own) return {};
  struct stat found {};
  if (fstat(own.get(), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
      found.st_nlink == 0 && found.st_size == bytes) {
    return own;
  }
  errno = EPERM;
  return {};
}

HostRegion host_region_of(const void* from, std::int64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::lock_guard lock(table().mutex);
  for (const HostRegion& region : table().regions) {
    const auto base = reinterpret_cast<std::uintptr_t>(region.begin);
    if (begin >= base && begin + static_cast<std::uintptr_t>(bytes) <=
                             base + static_cast<std::uintptr_t>(region.bytes)) {
      return region;
    }
  }
  return {};
}

const char* HostMappings::map(std::int32_t process, const HostRegion& region) {
  const auto [place, fresh] = mappings_.try_emplace({process, region.id});
  MappedPages& pages = place->second;
  if (fresh) {
    const Descriptor file = open_memfd_of(process, region.fd, O_RDONLY, kName, region.bytes);
    if (file) pages = MappedPages::shared(file.get(), region.bytes, /*writable=*/false);
  }
  return reinterpret_cast<const char*>(pages.data());
}

}  // namespace sluice
