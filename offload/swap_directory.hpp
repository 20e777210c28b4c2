// One directory of the NVMe tier and who may use it.
//
//   sluice-swap.lock        held (flock) only while somebody claims or releases
//   rank-00003.lock         held by the process of rank 3 as long as it lives; says who it is
//   rank-00003.swap         its data
//
// A run may claim a directory only if every rank lock that is held belongs to the same run id.
// Files whose lock nobody holds were left by a dead process: claim() removes them, or leaves them
// alone where they may hold an image to go on from. The locks end with their process, so a kill -9
// leaves nothing that blocks. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/lock_file.hpp"

namespace sluice {

// What becomes of swap files that dead processes left.
struct Leftovers {
  static constexpr int kAll = std::numeric_limits<int>::max();
  int kept_ranks = 0;          // those of ranks below stay: each rank looks at its own
  bool spares_images = false;  // a run could go on from one: IoError, and it stays
};

class SwapDirectory {
 public:
  // Creates the directory where only its last part is missing (a parent that is missing is more
  // likely a disk that is not mounted). Throws IoError.
  explicit SwapDirectory(std::string path);
  ~SwapDirectory();  // releases
  SwapDirectory(SwapDirectory&& other) noexcept = default;
  SwapDirectory& operator=(SwapDirectory&&) = delete;

  // lock() ... unlock() bracket claim() and whatever must not race with other claims (free space).
  // Throws IoError when another process keeps it for a minute.
  void lock();
  void unlock() noexcept;

  // REQUIRES: lock(). Throws IoError naming run, pid and host of who is there already, or a file
  // that has our name and is not ours.
  void claim(const std::string& run_id, int rank, const Leftovers& leftovers = {});
  // Removes what claim() kept, of this rank and of such as nobody is (a rank may have moved to
  // another host, or the run had more), but for what is to be kept now. REQUIRES: all ranks that
  // use the directory have claimed it, and lock().
  void remove_leftovers(const std::string& run_id, const Leftovers& leftovers = {}) const;
  // What the directory names survives a loss of power.
  void flush() const;
  // Removes this rank's lock, and the directory's when it was the last. Takes lock() itself.
  void release() noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string swap_path(int rank) const;
  [[nodiscard]] std::int64_t free_bytes() const;  // of the file system
  // What swap files of other ranks have yet to take of them: 0 where it could be reserved.
  [[nodiscard]] std::int64_t promised_bytes() const;
  [[nodiscard]] std::uint64_t device() const { return device_; }  // st_dev
  [[nodiscard]] std::uint64_t inode() const { return inode_; }

 private:
  [[nodiscard]] std::string lock_path(int rank) const;
  void reclaim(const std::string& swap_path, bool spares_images = false) const;
  void look_at_others(const std::string& run_id, int own_rank, const Leftovers& leftovers) const;

  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;
  LockFile directory_lock_, rank_lock_;
  int rank_ = -1;
};

}  // namespace sluice
