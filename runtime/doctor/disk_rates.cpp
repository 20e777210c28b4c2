#include "runtime/doctor/disk_rates.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/posix/descriptor.hpp"
#include "offload/io_backend.hpp"
#include "offload/nvme_bench.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kProbeBytes = 8 * kMiB;
constexpr std::int64_t kMostBytes = kGiB;
// bench_nvme writes once before it measures read, write and both.
constexpr double kPasses = 4;

// 0, or errno.
int try_open(const std::string& path, int flags) {
  return open_descriptor(path, flags, 0600) ? 0 : errno;
}

void probe_direct(DiskFacts& disk) {
  const std::string file = disk.path + "/sluice-doctor-" + std::to_string(::getpid());
  if (const int error = try_open(file, O_CREAT | O_EXCL | O_WRONLY); error != 0) {
    disk.direct_error = std::string("nothing can be created there: ") + std::strerror(error);
    return;
  }
  const int error = try_open(file, O_WRONLY | O_DIRECT);
  ::unlink(file.c_str());
  disk.direct = error == 0;
  if (error != 0) disk.direct_error = std::strerror(error);
}

NvmeBenchOptions options_of(const std::string& folder, std::int64_t bytes) {
  NvmeBenchOptions options;
  const NvmeOptions of_a_run;
  options.paths = {folder};
  options.bytes = bytes;
  options.block_bytes = {of_a_run.block_bytes};
  options.depths = {of_a_run.queue_depth};
  return options;
}

// Empty, or why nothing can be measured.
std::string obstacle(const DiskFacts& disk) {
  if (!disk.direct) return disk.direct_error;
  if (!*disk.direct) {
    return "the file system refuses O_DIRECT (" + disk.direct_error +
           "): its page cache would be measured, not the disk";
  }
  if (disk.free_bytes && *disk.free_bytes < 4 * kProbeBytes) {
    return "only " + format_bytes(*disk.free_bytes) + " are free there";
  }
  return "";
}

double slowest_pass(const NvmeBenchResult& result) {
  double slowest = result.points.front().bytes_per_s;
  for (const NvmeBenchPoint& point : result.points) {
    slowest = std::min(slowest, point.bytes_per_s);
  }
  return slowest;
}

void measure(const DiskFacts& disk, const std::string& folder, double seconds,
             MachineRates& rates) {
  NvmeBenchResult result = bench_nvme(options_of(folder, kProbeBytes));
  double fits = slowest_pass(result) * seconds / kPasses;
  if (disk.free_bytes) fits = std::min(fits, static_cast<double>(*disk.free_bytes) / 4);
  const std::int64_t bytes =
      static_cast<std::int64_t>(std::min(fits, static_cast<double>(kMostBytes))) / kMiB * kMiB;
  if (bytes > kProbeBytes) result = bench_nvme(options_of(folder, bytes));
  for (const NvmeBenchPoint& point : result.points) {
    if (point.direction == IoDirection::kRead) rates.disk_read_bps = point.bytes_per_s;
    if (point.direction == IoDirection::kWrite) rates.disk_write_bps = point.bytes_per_s;
    if (point.direction == IoDirection::kBoth) rates.disk_both_bps = point.bytes_per_s;
  }
}

}  // namespace

DiskFacts read_disk_facts(const std::string& path) {
  DiskFacts disk;
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  disk.path = error ? path : resolved.string();
  std::ifstream in("/proc/self/mountinfo");
  const std::string mounts{std::istreambuf_iterator<char>(in), {}};
  if (const auto mount = mount_of(mounts, disk.path)) {
    disk.file_system = mount->file_system;
    disk.device = mount->device;
  }
  struct statvfs space {};
  if (::statvfs(disk.path.c_str(), &space) == 0) {
    disk.free_bytes =
        static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
  }
  probe_direct(disk);
  try {
    (void)make_uring_backend(1);
    disk.uring = true;
  } catch (const std::exception& refused) {
    disk.uring_error = refused.what();
  }
  return disk;
}

void measure_disk(const DiskFacts& disk, double seconds, MachineRates& rates) {
  rates.nvme_path = disk.path;
  std::string reason = obstacle(disk);
  if (reason.empty()) {
    // One name for each user, so that the next doctor reclaims the files of a killed one.
    const std::string folder = disk.path + "/sluice-doctor-" + std::to_string(::getuid()) + ".swap";
    try {
      measure(disk, folder, seconds, rates);
    } catch (const std::exception& failed) {
      reason = error_chain(failed);
    }
    ::rmdir(folder.c_str());
  }
  if (reason.empty()) return;
  for (const char* field : {"disk_read_bps", "disk_write_bps", "disk_both_bps"}) {
    rates.not_measured[field] = reason;
  }
}

}  // namespace sluice
