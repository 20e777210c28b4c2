#include "offload/swap_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "offload/swap_file.hpp"

namespace sluice {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);
constexpr int kDirectoryPolls = 6000;  // a minute: other ranks may be reserving space
constexpr int kRankPolls = 100;        // a second: a killed process may still be freeing its memory

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  throw IoError(what + " " + path + ": " + std::strerror(error), path, error);
}

bool same_file(int descriptor, const std::string& path) {
  struct stat open_one {
  }, named{};
  return ::fstat(descriptor, &open_one) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

// The descriptor that holds the lock at `path`; -1 when it is still held elsewhere after `polls`.
// Whoever held it before may have removed the file: a lock on a file without a name is none.
int take_lock(const std::string& path, int polls) {
  for (int poll = 0;; ++poll) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) fail("cannot create", path, errno);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      if (same_file(descriptor, path)) return descriptor;
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      const int error = errno;
      ::close(descriptor);
      fail("cannot lock", path, error);
    }
    ::close(descriptor);
    if (poll >= polls) return -1;
    std::this_thread::sleep_for(kPoll);
  }
}

struct Holder {
  std::string run_id = "?", pid = "?", host = "?";
};

Holder read_holder(const std::string& path) {
  Holder holder;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  std::array<char, 512> line{};
  for (std::string* field : {&holder.run_id, &holder.pid, &holder.host}) {
    if (!file || std::fgets(line.data(), line.size(), file.get()) == nullptr) break;
    *field = line.data();
    if (!field->empty() && field->back() == '\n') field->pop_back();
  }
  return holder;
}

void write_holder(int descriptor, const std::string& path, const std::string& run_id) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string text = run_id + "\n" + std::to_string(::getpid()) + "\n" + host.data() + "\n";
  if (::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    fail("cannot write to", path, errno);
  }
}

[[noreturn]] void refuse(const std::string& directory, const std::string& lock_path) {
  const Holder holder = read_holder(lock_path);
  throw IoError("NVMe directory " + directory + " is in use by run '" + holder.run_id + "' (pid " +
                    holder.pid + " on host " + holder.host +
                    "): give this run another offload.nvme_path, or end that one",
                directory, EWOULDBLOCK);
}

std::string rank_name(int rank, const char* ending) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank-%05d.%s", rank, ending);
  return name.data();
}

// Ranks that have a lock or a swap file in the directory; one with both comes twice.
std::vector<int> ranks_in(const std::string& path) {
  std::vector<int> ranks;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) fail("cannot list", path, errno);
  while (const dirent* entry = ::readdir(directory.get())) {
    int rank = 0;
    if (std::sscanf(entry->d_name, "rank-%d", &rank) != 1 || rank < 0) continue;
    const std::string name = entry->d_name;
    if (name == rank_name(rank, "lock") || name == rank_name(rank, "swap")) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

SwapDirectory::SwapDirectory(std::string path) : path_(std::move(path)) {
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    throw IoError("NVMe directory " + path_ + " is not there and cannot be made (" +
                      std::strerror(error) + "): is the disk mounted?",
                  path_, error);
  }
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail("cannot look at", path_, errno);
  if (!S_ISDIR(status.st_mode)) fail("offload.nvme_path", path_, ENOTDIR);
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

SwapDirectory::~SwapDirectory() { release(); }

SwapDirectory::SwapDirectory(SwapDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_),
      directory_lock_(std::exchange(other.directory_lock_, -1)),
      rank_lock_(std::exchange(other.rank_lock_, -1)),
      rank_(other.rank_) {}

std::string SwapDirectory::lock_path(int rank) const {
  return path_ + "/" + rank_name(rank, "lock");
}
std::string SwapDirectory::swap_path(int rank) const {
  return path_ + "/" + rank_name(rank, "swap");
}

void SwapDirectory::lock() {
  check(directory_lock_ < 0, "a swap directory is locked once");
  directory_lock_ = take_lock(path_ + "/sluice-swap.lock", kDirectoryPolls);
  if (directory_lock_ < 0) {
    throw IoError("another process has kept " + path_ +
                      "/sluice-swap.lock for a minute: see what holds it (fuser)",
                  path_, EWOULDBLOCK);
  }
}

void SwapDirectory::unlock() noexcept {
  if (directory_lock_ >= 0) ::close(std::exchange(directory_lock_, -1));
}

void SwapDirectory::claim(const std::string& run_id, int rank) {
  check(directory_lock_ >= 0 && rank_lock_ < 0, "claim() comes once, under lock()");
  const std::string own = lock_path(rank);
  rank_lock_ = take_lock(own, kRankPolls);
  if (rank_lock_ < 0) refuse(path_, own);
  rank_ = rank;
  write_holder(rank_lock_, own, run_id);
  look_at_others(run_id, rank);
  reclaim(swap_path(rank));
}

void SwapDirectory::look_at_others(const std::string& run_id, int own_rank) const {
  for (const int rank : ranks_in(path_)) {
    if (rank == own_rank) continue;
    const std::string other = lock_path(rank);
    const int descriptor = take_lock(other, 0);
    if (descriptor < 0) {
      if (read_holder(other).run_id != run_id) refuse(path_, other);
      continue;
    }
    // Nobody lives there; claims are serialised by lock(), so nobody moves in meanwhile.
    try {
      reclaim(swap_path(rank));
    } catch (...) {
      ::close(descriptor);
      throw;
    }
    ::unlink(other.c_str());
    ::close(descriptor);
  }
}

void SwapDirectory::reclaim(const std::string& swap_path) const {
  struct stat status {};
  if (::lstat(swap_path.c_str(), &status) != 0) return;
  std::optional<SwapHeader> header;
  if (!S_ISREG(status.st_mode) || inspect_swap_file(swap_path, &header) == SwapKind::kForeign) {
    throw IoError(
        swap_path + " is not a swap file of Sluice although it has the name of one: move it away",
        swap_path);
  }
  if (::unlink(swap_path.c_str()) != 0) fail("cannot remove", swap_path, errno);
  log_info("removed " + swap_path + " (" + format_bytes(status.st_blocks * 512) + "), left by " +
           (header ? "run '" + header->run_id + "', pid " + std::to_string(header->pid) +
                         " on host " + header->host
                   : std::string("a run that died while it started")));
}

void SwapDirectory::release() noexcept {
  if (rank_lock_ < 0) return unlock();
  try {
    if (directory_lock_ < 0) lock();
    ::unlink(lock_path(rank_).c_str());
    if (ranks_in(path_).empty()) ::unlink((path_ + "/sluice-swap.lock").c_str());
  } catch (const std::exception& error) {
    log_warning("releasing " + path_ + ": " + error_chain(error));
  }
  ::close(std::exchange(rank_lock_, -1));
  unlock();
}

std::int64_t SwapDirectory::free_bytes() const {
  struct statvfs status {};
  if (::statvfs(path_.c_str(), &status) != 0)
    fail("cannot ask for the free space of", path_, errno);
  return static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
}

}  // namespace sluice
