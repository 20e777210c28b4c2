#include "runtime/checkpoint/io/writer_lock.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kReaderWait{100};  // longer than is_locked() holds the lock
constexpr milliseconds kPoll{10};

std::string lock_path(const WrittenFolder& folder) {
  return join_path(folder.path, kWriterLockName);
}

// "checkpoint.dir runs/a/checkpoints is in use by run runs/a (pid 4711 on host node1)"
std::string in_use(const WrittenFolder& folder) {
  const LockHolder holder = read_lock_holder(lock_path(folder));
  const std::string who =
      holder.host == "?" ? "an unknown process"
                         : holder.work + " (pid " + holder.pid + " on host " + holder.host + ")";
  return folder.key + " " + folder.path + " is in use by " + who;
}

// Throws unless is_free(wait) returns true. is_free() waits at most `wait`.
void expect_free(const std::function<bool(milliseconds wait)>& is_free, const WrittenFolder& folder,
                 milliseconds patience) {
  if (is_free(std::min(kReaderWait, patience))) return;
  log_info(in_use(folder) + "; waiting a moment in case that process is about to end");
  if (is_free(patience)) return;
  throw IoError(in_use(folder) +
                    ", and two runs that write to one folder lose each other's checkpoints and "
                    "logs; stop that run, wait for its end, or name another folder (" +
                    folder.key + ")",
                folder.path, EWOULDBLOCK);
}

bool has_same(const std::vector<WrittenFolder>& folders, const std::string& path) {
  return std::any_of(folders.begin(), folders.end(), [&](const WrittenFolder& folder) {
    std::error_code ignored;
    return fs::equivalent(folder.path, path, ignored);
  });
}

}  // namespace

void check_not_written(const std::vector<WrittenFolder>& folders, milliseconds patience) {
  for (const WrittenFolder& folder : folders) {
    const auto is_free = [&](milliseconds wait) {
      const auto until = std::chrono::steady_clock::now() + wait;
      while (is_locked(lock_path(folder))) {
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(kPoll);
      }
      return true;
    };
    expect_free(is_free, folder, patience);
  }
}

WriterLock::WriterLock(const std::vector<WrittenFolder>& folders, const std::string& work,
                       milliseconds patience)
    : WriterLock() {  // delegation: the destructor runs even if a later folder is refused
  std::vector<WrittenFolder> locked;
  for (const WrittenFolder& folder : folders) {
    std::error_code unmade;  // ignored: a later write reports the cause
    if (fs::create_directories(folder.path, unmade)) made_.push_back(folder.path);
    if (unmade || has_same(locked, folder.path)) continue;
    LockFile lock;
    try {
      expect_free([&](milliseconds wait) { return take(lock, folder, wait); }, folder, patience);
    } catch (const IoError& error) {
      if (error.error_number() == EWOULDBLOCK) throw;
      log_warning(folder.key + " " + folder.path + " cannot be locked (" + error.what() +
                  "); another run that writes there would not be refused");
      continue;
    }
    try {
      lock.sign(work);
    } catch (const IoError& error) {  // a full disk; the lock is held nevertheless
      log_debug(error.what());
    }
    locks_.push_back(std::move(lock));
    locked.push_back(folder);
  }
}

// The previous holder may remove the lock file and the empty folder; take() then creates the folder
// again.
bool WriterLock::take(LockFile& lock, const WrittenFolder& folder, milliseconds wait) {
  for (;;) {
    try {
      return lock.take(lock_path(folder), wait);
    } catch (const IoError& error) {
      std::error_code unmade;
      const bool gone = error.error_number() == ENOENT;
      if (gone && fs::create_directories(folder.path, unmade)) made_.push_back(folder.path);
      if (!gone || unmade) throw;
    }
  }
}

WriterLock::~WriterLock() {
  for (LockFile& lock : locks_) lock.remove();
  std::error_code full;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) fs::remove(*folder, full);
}

}  // namespace sluice
