// A file system in memory that keeps apart what was synced and what was only said, and that can
// lose its power: then of all that was not synced any part may be there, in any order. A name needs
// its directory synced, contents need their file synced; a rename is whole or not at all. Of
// contents sectors may be missing, or all but the length, with what was there before, zeros or the
// bytes of another file in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice::testing {

struct PowerLoss {};  // thrown by the call during which it happens

class CrashFileSystem final : public FileSystem {
 public:
  CrashFileSystem();
  ~CrashFileSystem() override;

  // The call after this many more throws PowerLoss, and so do all behind it.
  void lose_power_after(std::int64_t calls) { calls_left_ = calls; }
  // What a disk does that lies about its cache: syncs do nothing.
  void ignore_syncs(bool ignore) { ignore_syncs_ = ignore; }
  // A directory that this user may pass through and not list: syncing it fails.
  void forbid_sync_of(std::string dir) { forbidden_ = std::move(dir); }
  [[nodiscard]] std::unique_ptr<CrashFileSystem> copy() const;
  // What is on the disk when the power is back.
  [[nodiscard]] std::unique_ptr<CrashFileSystem> after_crash(std::mt19937& random) const;

  std::unique_ptr<File> create(const std::string& path) override;
  std::unique_ptr<File> open(const std::string& path) override;
  bool make_dir(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void unlink(const std::string& path) override;
  void remove_dir(const std::string& path) override;
  void sync_dir(const std::string& path) override;
  std::optional<FileStat> stat(const std::string& path) override;
  std::vector<std::string> list(const std::string& dir) override;

  struct Node;

 private:
  friend class CrashFile;
  void count();
  [[nodiscard]] std::shared_ptr<Node> find(const std::string& path) const;
  [[nodiscard]] std::shared_ptr<Node> directory_of(const std::string& path) const;
  void remove(const std::string& path);

  std::shared_ptr<Node> root_;
  std::int64_t calls_left_ = std::numeric_limits<std::int64_t>::max();
  bool ignore_syncs_ = false;
  std::string forbidden_;
};

}  // namespace sluice::testing
