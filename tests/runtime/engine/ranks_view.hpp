// One rank's view of a folder of checkpoints: counts its looks at the ranks' files, and may not see
// one of them. For one thread.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice::testing {

class RanksView final : public FileSystem {
 public:
  explicit RanksView(std::string hidden = {}) : hidden_(std::move(hidden)) {}
  [[nodiscard]] int stats() const { return stats_; }
  std::unique_ptr<File> create(const std::string& path) override { return local_.create(path); }
  std::unique_ptr<File> open(const std::string& path) override {
    if (is_hidden(path)) throw IoError("no such file: " + path, path, ENOENT);
    return local_.open(path);
  }
  bool make_dir(const std::string& path) override { return local_.make_dir(path); }
  void rename(const std::string& from, const std::string& to) override { local_.rename(from, to); }
  void unlink(const std::string& path) override { local_.unlink(path); }
  void remove_dir(const std::string& path) override { local_.remove_dir(path); }
  void sync_dir(const std::string& path) override { local_.sync_dir(path); }
  std::optional<FileStat> stat(const std::string& path) override {
    stats_ += path.ends_with(".safetensors") ? 1 : 0;
    return is_hidden(path) ? std::nullopt : local_.stat(path);
  }
  std::vector<std::string> list(const std::string& dir) override { return local_.list(dir); }

 private:
  [[nodiscard]] bool is_hidden(const std::string& path) const {
    return !hidden_.empty() && path.ends_with(hidden_);
  }
  FileSystem& local_ = local_file_system();
  const std::string hidden_;
  int stats_ = 0;
};

}  // namespace sluice::testing
