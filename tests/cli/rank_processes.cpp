#include "tests/cli/rank_processes.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_sluice(int pid) {
  std::error_code gone;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone).filename() == "sluice";
}

// The value of "Name:   123 kB" as bytes, of "Name:   123" as it is; 0 where there is none.
std::int64_t field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    std::int64_t value = 0;
    std::string unit;
    rest >> value >> unit;
    return unit == "kB" ? value * 1024 : value;
  }
  return 0;
}

}  // namespace

std::vector<int> rank_processes(const std::string& folder, const std::string& text) {
  std::vector<int> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (!fs::equivalent(entry.path() / "cwd", folder, gone)) continue;
    if (text_of(entry.path() / "cmdline").find(text) == std::string::npos) continue;
    const auto parent = static_cast<int>(field(text_of(entry.path() / "status"), "PPid"));
    const int pid = std::stoi(name);
    if (is_sluice(pid) && is_sluice(parent)) found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::int64_t memory_of(int pid) {
  const std::string text = text_of("/proc/" + std::to_string(pid) + "/smaps_rollup");
  return field(text, "Pss_Anon") + field(text, "Pss_Shmem");
}

Held held_by(int pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  const std::string text = text_of(process / "status");
  Held held;
  held.resident = field(text, "VmRSS");
  held.locked = field(text, "VmLck");
  held.pinned = field(text, "VmPin");
  held.threads = field(text, "Threads");
  std::error_code gone;
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end;
       at.increment(gone)) {
    ++held.descriptors;
  }
  std::istringstream maps(text_of(process / "maps"));
  for (std::string line; std::getline(maps, line);) {
    for (const char* kind : {" /dev/shm/", " /memfd:", " /SYSV"}) {
      held.shared += line.find(kind) != std::string::npos ? 1 : 0;
    }
  }
  return held;
}

std::int64_t disk_use(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code gone;
  for (fs::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
    struct stat status {};
    if (::stat(at->path().c_str(), &status) == 0) bytes += status.st_blocks * 512;
  }
  return bytes;
}

}  // namespace sluice::testing
