#include "parallel/comm/host_memory.hpp"

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

HostMemory::HostMemory(std::int64_t bytes) : bytes_(bytes) {
  check(bytes > 0, "a block of shared memory has a size");
  fd_ = memfd_create(kName, MFD_CLOEXEC);
  if (fd_ < 0) refuse(bytes, errno);
  void* base = MAP_FAILED;
  if (ftruncate(fd_, bytes) == 0) {
    base =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  }
  if (base == MAP_FAILED) {
    const int error = errno;
    close(fd_);
    refuse(bytes, error);
  }
  data_ = static_cast<char*>(base);
  // Taken where the machine has huge pages for shared memory (shmem_enabled: advise).
  madvise(base, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  const std::lock_guard lock(table().mutex);
  table().regions.push_back({++table().last_id, fd_, data_, bytes});
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      fd_(std::exchange(other.fd_, -1)) {}

HostMemory::~HostMemory() {
  if (data_ == nullptr) return;
  {
    const std::lock_guard lock(table().mutex);
    std::erase_if(table().regions, [this](const HostRegion& r) { return r.begin == data_; });
  }
  munmap(data_, static_cast<std::size_t>(bytes_));
  // A hole, not a shorter file: a peer whose operation failed half-way may still read, and would
  // get SIGBUS beyond the end.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes_);
  close(fd_);
}

int open_memfd_of(std::int32_t process, std::int32_t fd, int flags, const char* name,
                  std::int64_t bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
  // The kernel's text for a memfd. That nothing links to it is looked at once it is open.
  std::array<char, 64> link{};
  if (readlink(path.c_str(), link.data(), link.size() - 1) < 0) return -1;
  const std::string wanted = std::string("/memfd:") + name + " (deleted)";
  // Non-blocking: a pipe or a device in the place of the memfd must not hold the rank.
  const int own = link.data() == wanted ? open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK)
                                        : (errno = EPERM, -1);
  if (own < 0) return -1;
  struct stat found {};
  if (fstat(own, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
      found.st_nlink == 0 && found.st_size == bytes) {
    return own;
  }
  close(own);
  errno = EPERM;
  return -1;
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

HostMappings::~HostMappings() {
  for (const auto& [key, mapping] : mappings_) {
    if (mapping.base != nullptr) munmap(mapping.base, static_cast<std::size_t>(mapping.bytes));
  }
}

const char* HostMappings::map(std::int32_t process, const HostRegion& region) {
  const auto [place, fresh] = mappings_.try_emplace({process, region.id});
  if (!fresh) return place->second.base;
  const int fd = open_memfd_of(process, region.fd, O_RDONLY, kName, region.bytes);
  if (fd < 0) return nullptr;
  void* base = mmap(nullptr, static_cast<std::size_t>(region.bytes), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (base == MAP_FAILED) return nullptr;
  place->second = {static_cast<char*>(base), region.bytes};
  return place->second.base;
}

}  // namespace sluice
