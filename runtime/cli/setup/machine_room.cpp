#include "runtime/cli/setup/machine_room.hpp"

#include <mntent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "offload/swap_directory.hpp"
#include "runtime/launch/hosts/hostfile.hpp"
#include "runtime/run/memory_left.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Free bytes of the machine's roomiest disk; 0: not known. Mounts without a device are memory or
// another machine's disks, which may not answer.
std::int64_t roomiest_disk() {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(::setmntent("/proc/self/mounts", "r"),
                                                     ::endmntent);
  mntent mount{};
  char text[4096];
  std::int64_t most = 0;
  while (mounts && ::getmntent_r(mounts.get(), &mount, text, sizeof text) != nullptr) {
    const std::string_view type = mount.mnt_type;
    if (mount.mnt_fsname[0] != '/' && type != "overlay" && type != "zfs") continue;
    std::error_code unknown;
    const fs::space_info space = fs::space(mount.mnt_dir, unknown);
    if (!unknown) most = std::max(most, static_cast<std::int64_t>(space.available));
  }
  return most;
}

// Arrays are striped over the folders in equal shares, so the fullest disk limits all of them.
std::int64_t nvme_room(const std::vector<std::string>& folders) {
  if (folders.empty()) return roomiest_disk();
  struct Disk {
    std::int64_t free = 0;
    int folders = 0;
  };
  std::map<dev_t, Disk> disks;
  for (const std::string& folder : folders) {
    std::error_code unknown;
    const fs::path path = fs::absolute(folder, unknown).lexically_normal();
    // A run makes the folder itself, but not its parents (offload/swap_directory.cpp).
    const fs::path there = fs::exists(path, unknown) ? path : path.parent_path();
    struct stat status {};
    const fs::space_info space = fs::space(there, unknown);
    if (unknown || space.capacity == 0 || ::stat(there.c_str(), &status) != 0) return 0;
    Disk& disk = disks[status.st_dev];
    if (disk.folders++ == 0) disk.free = static_cast<std::int64_t>(space.available);
    disk.free += swap_bytes_in(path.string());  // the next run of the folder takes their place
  }
  std::int64_t share = std::numeric_limits<std::int64_t>::max();
  for (const auto& [device, disk] : disks) share = std::min(share, disk.free / disk.folders);
  // 0 would be "not known".
  return std::max<std::int64_t>(1, share * std::ssize(folders));
}

// The smaller of two budgets of which 0 is none.
std::int64_t tighter(std::int64_t one, std::int64_t other) {
  if (one == 0 || other == 0) return std::max(one, other);
  return std::min(one, other);
}

std::string memory_shortage(const HostRoom& room, const TierBytes& need, const RunConfig& run,
                            const RunPlace& place) {
  const int ranks = std::max(1, place.local_ranks);
  std::string text =
      "memory.host: the ranks of a host need " +
      format_bytes(nth(need, Tier::kHost) + (place.on_gpu ? 0 : nth(need, Tier::kDevice))) +
      " of its memory (a rank: " + format_bytes(nth(need, Tier::kHost) / ranks) + " off the device";
  if (!place.on_gpu) text += ", " + format_bytes(nth(need, Tier::kDevice) / ranks) + " as device";
  return text + "), and here are " + format_bytes(room.memory - room.swap) + " free" +
         (room.swap > 0 ? ", and " + format_bytes(room.swap) + " of swap" : "") +
         ": the system would end the run. Free memory, or need less: states to nvme" +
         (run.offload.speculate == Speculation::kNever
              ? ""
              : ", or a smaller memory.host, which bounds the early updates of offload.speculate");
}

}  // namespace

HostRanks ranks_here(const RunConfig& run, int local_ranks) {
  if (run.launch.hostfile.empty()) return {0, local_ranks};
  int first = 0;
  try {
    const int slots = run.launch.nproc > 0 ? run.launch.nproc : local_ranks;
    for (const HostSlots& host : read_hostfile(run.launch.hostfile, slots)) {
      if (is_this_host(host.host)) return {first, host.slots};
      first += host.slots;
    }
  } catch (const ConfigError&) {
    return {};  // a plan needs no file of hosts; `train` has read it
  }
  return {};
}

HostRoom host_room(const RunConfig& run) {
  if (ranks_here(run, 1).count == 0) return {};
  HostRoom room{.nvme = nvme_room(run.offload.nvme_path)};
  const std::int64_t left = memory_left_bytes();
  if (left == std::numeric_limits<std::int64_t>::max()) return room;
  room.swap = swap_left_bytes();
  room.memory = std::max<std::int64_t>(1, left + room.swap);
  return room;
}

std::vector<std::string> shortages(const HostRoom& room, const TierBytes& need,
                                   const RunConfig& run, const RunPlace& place) {
  std::vector<std::string> found;
  const std::int64_t memory =
      nth(need, Tier::kHost) + (place.on_gpu ? 0 : nth(need, Tier::kDevice));
  if (room.memory > 0 && memory > room.memory) {
    found.push_back(memory_shortage(room, need, run, place));
  }
  if (room.nvme > 0 && nth(need, Tier::kNvme) > room.nvme) {
    found.push_back("offload.nvme_path: the ranks of a host need " +
                    format_bytes(nth(need, Tier::kNvme)) + " there, and " +
                    format_bytes(room.nvme) +
                    " are free. Free space, name a larger disk, or keep states elsewhere");
  }
  return found;
}

RunConfig within(RunConfig run, const HostRoom& room, const RunPlace& place) {
  run.memory.host = tighter(run.memory.host, memory_to_plan(room));
  run.memory.nvme = tighter(run.memory.nvme, room.nvme);
  // Without a budget the planner takes the card, less CUDA's context.
  if (place.on_gpu && run.memory.device > 0) {
    run.memory.device = tighter(run.memory.device, place.card_bytes);
  }
  return run;
}

}  // namespace sluice
