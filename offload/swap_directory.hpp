// One directory of the NVMe tier and its locks.
//
//   sluice-swap.lock        held (flock) only during a claim or a release
//   rank-00003.lock         held by the process of rank 3 until it ends; names the process
//   rank-00003.swap         the data of rank 3
//
// A run may claim a directory only if every held rank lock belongs to the same run id. A file whose
// lock is free was left by a dead process: claim() removes the file, or keeps it if it may be part
// of an image. The kernel releases the locks when their process ends, so a kill -9 leaves no lock
// behind. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/posix/lock_file.hpp"

namespace sluice {

// A directory that this run cannot have. The message is "<problem>: <advice>". The advice is for a
// training run; a program that only reads a model needs no directory, and has its own advice.
class SwapDirectoryError : public IoError {
 public:
  SwapDirectoryError(std::string problem, const std::string& advice, const std::string& path,
                     int error_number = 0)
      : IoError(problem + ": " + advice, path, error_number), problem_(std::move(problem)) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

// Treatment of swap files that dead processes left.
struct Leftovers {
  static constexpr int kAll = std::numeric_limits<int>::max();
  int kept_ranks = 0;          // files of ranks below kept_ranks stay; each rank inspects its own
  bool spares_images = false;  // IoError for a file of an image that a run could resume from
};

class SwapDirectory {
 public:
  // Creates the directory if only the last part of the path is missing. A missing parent is an
  // IoError, because the disk is probably not mounted.
  explicit SwapDirectory(std::string path);
  ~SwapDirectory();  // calls release()
  SwapDirectory(SwapDirectory&& other) noexcept = default;
  SwapDirectory& operator=(SwapDirectory&&) = delete;

  // lock() and unlock() bracket claim() and every action that must not race with claims of other
  // processes, such as the check of free space. lock() throws IoError after a minute of waiting.
  void lock();
  void unlock() noexcept;

  // Throws IoError if another run uses the directory (names run, pid and host), if a file with a
  // swap file's name is no swap file, or if a file to be removed belongs to the image of another
  // run (run_of). REQUIRES: lock().
  void claim(const std::string& run_id, int rank, const Leftovers& leftovers = {});
  // Removes files that claim() kept and that `leftovers` no longer keeps: files of this rank and of
  // ranks without a process (the former run had more ranks, or a rank moved to another host).
  // Throws as claim() does. REQUIRES: lock(), and all ranks that use the directory have claimed it.
  void remove_leftovers(const std::string& run_id, const Leftovers& leftovers = {}) const;
  // Makes the directory's entries survive a loss of power.
  void flush() const;
  // Removes the lock file of this rank, and that of the directory after the last rank. Takes and
  // releases lock() itself.
  void release() noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string swap_path(int rank) const;
  [[nodiscard]] std::int64_t free_bytes() const;  // of the file system
  // Part of free_bytes() that swap files of other ranks will still use; 0 if their space is
  // reserved.
  [[nodiscard]] std::int64_t promised_bytes() const;
  [[nodiscard]] std::uint64_t device() const { return device_; }  // st_dev
  [[nodiscard]] std::uint64_t inode() const { return inode_; }

 private:
  [[nodiscard]] std::string lock_path(int rank) const;
  void reclaim(const std::string& swap_path, const std::string& run_id,
               bool spares_images = false) const;
  void check_other_ranks(const std::string& run_id, int own_rank, const Leftovers& leftovers) const;

  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;
  LockFile directory_lock_, rank_lock_;
  int rank_ = -1;
};

// Bytes on the disk that the swap files of all ranks in directory `path` have; 0: none is there, or
// the directory cannot be read.
[[nodiscard]] std::int64_t swap_bytes_in(const std::string& path);

}  // namespace sluice
