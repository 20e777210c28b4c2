// Memory that other ranks of this host can map: what a communicator over shared memory sends from
// here is read in place, without the system call that copies from private memory (some 3 times as
// fast). Any communicator takes it.
//
// Which blocks there are is known to the process (a table behind a lock), because operations name
// memory by its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/posix/descriptor.hpp"
#include "base/posix/map.hpp"

namespace sluice {

// Owns a block: zeroes, page-aligned, pages taken when first written. A forked child shares it. The
// pages are given back at the end, also where a peer has mapped them. Thread-safe to make and end.
class HostMemory {
 public:
  // Throws IoError. bytes > 0.
  explicit HostMemory(std::int64_t bytes);
  HostMemory(HostMemory&& other) noexcept = default;
  HostMemory& operator=(HostMemory&&) = delete;
  ~HostMemory();

  [[nodiscard]] char* data() const { return reinterpret_cast<char*>(pages_.data()); }
  [[nodiscard]] std::int64_t size_bytes() const { return pages_.bytes(); }

 private:
  Descriptor file_;
  MappedPages pages_;
};

// Opens another process's memfd by its number there. None, with errno, where that is impossible;
// EPERM where the number names anything else than a memfd of this user with this name and size: a
// wrong number must not map, or write to, a file.
[[nodiscard]] Descriptor open_memfd_of(std::int32_t process, std::int32_t fd, int flags,
                                       const char* name, std::int64_t bytes);

// A block as other processes find it.
struct HostRegion {
  std::uint64_t id = 0;  // never used twice by a process; 0: none
  std::int32_t fd = -1;
  const char* begin = nullptr;  // in its owner's memory
  std::int64_t bytes = 0;
};
// The block that holds all of [from, from + bytes); id 0 where there is none.
[[nodiscard]] HostRegion host_region_of(const void* from, std::int64_t bytes);

// Blocks of other processes, mapped when first asked for, until the end. One thread at a time.
class HostMappings {
 public:
  // Where the region begins in this process, to read; nullptr where it cannot be mapped.
  [[nodiscard]] const char* map(std::int32_t process, const HostRegion& region);

 private:
  std::map<std::pair<std::int32_t, std::uint64_t>, MappedPages> mappings_;
};

}  // namespace sluice
