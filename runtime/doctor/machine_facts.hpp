// Facts that the machine reports without measurement: processor, memory, limits, kernel switches.
// An unknown fact is empty, never guessed; no function throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_features.hpp"
#include "runtime/doctor/gpu_facts.hpp"

namespace sluice {

struct NodeFact {
  int os_index = 0;
  std::int64_t memory_bytes = 0;  // 0: the system does not say
  int cores = 0;
};

struct MachineFacts {
  std::string cpu_model;  // may be empty
  Isa isa = Isa::kScalar;
  bool amx_reported = false, amx_usable = false;
  std::optional<double> clock_hz;   // of the first core now
  std::string clock_source;         // of the kernel: tsc, hpet, ...
  int cores = 1;                    // that this process may use
  int hardware_threads = 1;         //
  std::optional<double> cpu_quota;  // cores' worth of time
  std::optional<double> load;       // runnable threads, mean of the last minute
  // GOMP_SPINCOUNT and OMP_WAIT_POLICY of this process; empty: not set
  std::string spin_count, wait_policy;
  std::vector<NodeFact> nodes;
  std::int64_t cache_bytes = 0;  // the largest cache of the first core; 0: unknown
  std::optional<std::int64_t> memory_bytes, available_bytes, swap_bytes, swap_used_bytes;
  std::optional<std::int64_t> memlock_bytes;  // empty with memlock_unlimited
  bool memlock_unlimited = false;
  bool memlock_exempt = false;  // CAP_IPC_LOCK: the limit does not apply to this process
  std::string huge_pages, shared_huge_pages;  // the kernel's setting; empty: it has none
  std::optional<std::int64_t> shm_bytes, shm_free_bytes;  // /dev/shm
  int gpus = 0;                                           // that are visible
  std::optional<GpuFacts> gpu;                            // the one that was measured
  // Why the machine's GPUs cannot be used and what to do; empty if they can, or if there are none.
  std::string gpu_fault, gpu_remedy;
  std::string hidden_gpus;  // what CUDA_VISIBLE_DEVICES hides; empty: nothing
};

// The file system and device under a folder, as the NVMe tier uses them.
struct DiskFacts {
  std::string path;
  std::string file_system, device;  // "ext4", "/dev/nvme0n1p1"; empty: unknown
  std::optional<std::int64_t> free_bytes;
  std::optional<bool> direct;  // O_DIRECT; empty: nothing can be created there
  std::string direct_error;    // why not
  bool uring = false;
  std::string uring_error;
};

// `gpus`: number of GPUs. The caller asks the driver, at a moment when that is allowed. Forks once,
// to test AMX.
[[nodiscard]] MachineFacts read_machine_facts(int gpus);
// REQUIRES: `path` is a folder.
[[nodiscard]] DiskFacts read_disk_facts(const std::string& path);

// "always [madvise] never" is madvise; empty if nothing is chosen. Pure.
[[nodiscard]] std::string chosen_setting(std::string_view text);
// The line of /proc/self/mountinfo that holds `path` (absolute, resolved). Pure.
struct Mount {
  std::string point, file_system, device;
};
[[nodiscard]] std::optional<Mount> mount_of(std::string_view mountinfo, std::string_view path);
// Bytes of a cache from "32768K" or "2M"; 0 for other text. Pure.
[[nodiscard]] std::int64_t parse_cache_size(std::string_view text);

}  // namespace sluice
