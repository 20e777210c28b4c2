// The rank processes of a run, and their memory as the kernel reports it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::testing {

// The ranks of the run in this working directory whose command line contains `text`, in the order
// of their numbers.
[[nodiscard]] std::vector<int> rank_processes(const std::string& folder, const std::string& text);

// Bytes that exist only because of this process: anonymous and shared memory, with a share of pages
// that several processes map. Pages of files (libraries, the token cache) are excluded, since the
// kernel may drop them.
[[nodiscard]] std::int64_t memory_of(int pid);

struct Held {
  std::int64_t resident = 0;  // bytes
  std::int64_t locked = 0;
  std::int64_t pinned = 0;
  std::int64_t threads = 0;
  std::int64_t descriptors = 0;
  std::int64_t shared = 0;  // mappings of shared memory that has a name: /dev/shm, memfd, SysV
};
// Zeroes after the process has ended.
[[nodiscard]] Held held_by(int pid);

// Bytes on the disk of the files in a folder.
[[nodiscard]] std::int64_t disk_use(const std::string& folder);

}  // namespace sluice::testing
