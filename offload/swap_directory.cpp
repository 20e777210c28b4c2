#include "offload/swap_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/io_error.hpp"
#include "offload/io_backend.hpp"
#include "offload/nvme_image.hpp"
#include "offload/swap_file.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kDirectoryWait{60000};  // other ranks may be reserving space
constexpr std::chrono::milliseconds kRankWait{1000};  // a killed rank may still be freeing memory
constexpr std::chrono::milliseconds kNoWait{0};

[[noreturn]] void refuse(const std::string& directory, const std::string& lock_path) {
  const LockHolder holder = read_lock_holder(lock_path);
  throw SwapDirectoryError("NVMe directory " + directory + " is in use by run '" + holder.work +
                               "' (pid " + holder.pid + " on host " + holder.host + ")",
                           "give this run another offload.nvme_path, or end that one", directory,
                           EWOULDBLOCK);
}

std::string rank_name(int rank, const char* ending) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank-%05d.%s", rank, ending);
  return name.data();
}

constexpr std::int64_t kStatBlock = 512;

// Ranks with a lock or a swap file in the directory.
std::set<int> ranks_in(const std::string& path) {
  std::set<int> ranks;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) throw_io_error("list", path, errno);
  while (const dirent* entry = ::readdir(directory.get())) {
    int rank = 0;
    if (std::sscanf(entry->d_name, "rank-%d", &rank) != 1 || rank < 0) continue;
    const std::string name = entry->d_name;
    if (name == rank_name(rank, "lock") || name == rank_name(rank, "swap")) ranks.insert(rank);
  }
  return ranks;
}

// Creates the folder unless it exists. Its name survives a loss of power, as an image must.
void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) {
    if (const int error = sync_folder(path + "/..")) throw_io_error("sync", path + "/..", error);
  } else if (const int error = errno; error != EEXIST) {
    throw SwapDirectoryError("NVMe directory " + path + " does not exist and cannot be created (" +
                                 std::strerror(error) + ")",
                             "is the disk mounted?", path, error);
  }
}

}  // namespace

SwapDirectory::SwapDirectory(std::string path) : path_(std::move(path)) {
  make_folder(path_);
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) throw_io_error("look at", path_, errno);
  if (!S_ISDIR(status.st_mode)) throw_io_error("use offload.nvme_path", path_, ENOTDIR);
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

SwapDirectory::~SwapDirectory() { release(); }

std::string SwapDirectory::lock_path(int rank) const {
  return path_ + "/" + rank_name(rank, "lock");
}
std::string SwapDirectory::swap_path(int rank) const {
  return path_ + "/" + rank_name(rank, "swap");
}

void SwapDirectory::lock() {
  if (!directory_lock_.take(path_ + "/sluice-swap.lock", kDirectoryWait)) {
    throw SwapDirectoryError("another process has kept " + path_ + "/sluice-swap.lock for a minute",
                             "see what holds it (fuser)", path_, EWOULDBLOCK);
  }
}

void SwapDirectory::unlock() noexcept { directory_lock_.release(); }

void SwapDirectory::claim(const std::string& run_id, int rank, const Leftovers& leftovers) {
  check(directory_lock_.held() && !rank_lock_.held(), "claim() comes once, under lock()");
  const std::string own = lock_path(rank);
  if (!rank_lock_.take(own, kRankWait)) refuse(path_, own);
  rank_ = rank;
  rank_lock_.sign(run_id);
  check_other_ranks(run_id, rank, leftovers);
  if (rank >= leftovers.kept_ranks) reclaim(swap_path(rank), run_id, leftovers.spares_images);
}

void SwapDirectory::remove_leftovers(const std::string& run_id, const Leftovers& leftovers) const {
  check_other_ranks(run_id, rank_, leftovers);
  if (rank_ >= leftovers.kept_ranks) reclaim(swap_path(rank_), run_id);
}

void SwapDirectory::flush() const {
  int error = injected_errno("nvme.sync", EIO);
  if (error == 0) error = sync_folder(path_);
  if (error != 0) throw_io_error("flush", path_, error);
}

void SwapDirectory::check_other_ranks(const std::string& run_id, int own_rank,
                                      const Leftovers& leftovers) const {
  for (const int rank : ranks_in(path_)) {
    if (rank == own_rank) continue;
    const std::string other = lock_path(rank);
    LockFile free_one;
    if (!free_one.take(other, kNoWait)) {
      if (read_lock_holder(other).work != run_id) refuse(path_, other);
      continue;
    }
    // No process of this rank is alive. lock() serialises claims, so none can start meanwhile.
    if (rank >= leftovers.kept_ranks) reclaim(swap_path(rank), run_id, leftovers.spares_images);
    free_one.remove();
  }
}

void SwapDirectory::reclaim(const std::string& swap_path, const std::string& run_id,
                            bool spares_images) const {
  struct stat status {};
  if (::lstat(swap_path.c_str(), &status) != 0) return;
  std::optional<SwapHeader> header;
  const SwapKind kind =
      S_ISREG(status.st_mode) ? inspect_swap_file(swap_path, &header) : SwapKind::kForeign;
  if (kind == SwapKind::kForeign) {
    throw IoError(
        swap_path + " is not a swap file of Sluice although it has the name of one: move it away",
        swap_path);
  }
  const bool is_other_run = header && run_of(header->run_id) != run_of(run_id);
  if (header && header->image && (spares_images || is_other_run)) {
    throw SwapDirectoryError(
        swap_path + " is part of an image that a training run can go on from (run '" +
            header->run_id + "')",
        "go on with that run (--resume auto with its output.dir), or give this one another "
        "offload.nvme_path; only if that run is of no use any more, remove the file",
        swap_path);
  }
  if (spares_images && kind == SwapKind::kDamaged) {
    throw SwapDirectoryError(swap_path + " is a swap file whose header is damaged",
                             "it may be part of an image that a training run could go on from; "
                             "remove it, or give this run another offload.nvme_path",
                             swap_path);
  }
  if (::unlink(swap_path.c_str()) != 0) throw_io_error("remove", swap_path, errno);
  log_info("removed " + swap_path + " (" + format_bytes(status.st_blocks * 512) + "), left by " +
           (header ? "run '" + header->run_id + "', pid " + std::to_string(header->pid) +
                         " on host " + header->host
                   : std::string("a run that died while it started")));
}

void SwapDirectory::release() noexcept {
  if (!rank_lock_.held()) return unlock();
  try {
    if (!directory_lock_.held()) lock();
    rank_lock_.remove();
    if (ranks_in(path_).empty()) directory_lock_.remove();
  } catch (const std::exception& error) {
    log_warning("releasing " + path_ + ": " + error_chain(error));
  }
  rank_lock_.release();
  unlock();
}

std::int64_t SwapDirectory::free_bytes() const {
  struct statvfs status {};
  if (::statvfs(path_.c_str(), &status) != 0)
    throw_io_error("ask for the free space of", path_, errno);
  return static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
}

std::int64_t SwapDirectory::promised_bytes() const {
  std::int64_t sum = 0;
  for (const int rank : ranks_in(path_)) {
    struct stat status {};
    if (rank == rank_ || ::lstat(swap_path(rank).c_str(), &status) != 0) continue;
    sum += std::max<std::int64_t>(0, status.st_size - status.st_blocks * kStatBlock);
  }
  return sum;
}

std::int64_t swap_bytes_in(const std::string& path) {
  if (::access(path.c_str(), R_OK | X_OK) != 0) return 0;
  std::int64_t bytes = 0;
  for (const int rank : ranks_in(path)) {
    struct stat status {};
    const std::string file = path + "/" + rank_name(rank, "swap");
    if (::lstat(file.c_str(), &status) == 0) bytes += status.st_blocks * kStatBlock;
  }
  return bytes;
}

}  // namespace sluice
