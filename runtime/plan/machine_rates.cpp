#include "runtime/plan/machine_rates.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "SLUICE_RATES";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void cannot_write(const std::string& path, int error) {
  throw IoError("cannot write the rates file " + path + ": " + std::strerror(error) +
                    "; give another with --out or SLUICE_RATES",
                path, error);
}

}  // namespace

std::string rates_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string machine_rates_path() {
  if (const std::string path = environment(kVariable); !path.empty()) return path;
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) {
      throw ConfigError(
          "no place for the rates file: HOME, XDG_CACHE_HOME and SLUICE_RATES are not set; set one "
          "or give --out");
    }
    cache = home + "/.cache";
  }
  return cache + "/sluice/rates-" + rates_host() + ".json";
}

void write_machine_rates(const MachineRates& rates, const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) cannot_write(path, error.value());
  const std::string partial = path + ".partial-" + std::to_string(::getpid());
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file << machine_rates_json(rates) << std::flush;
    if (!file) {
      const int failed = errno;
      fs::remove(partial, error);
      cannot_write(path, failed);
    }
  }
  fs::rename(partial, path, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(partial, ignored);
  cannot_write(path, error.value());
}

MachineRates read_machine_rates(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw IoError("cannot read the rates file " + path + ": " + std::strerror(errno) +
                      "; `sluice doctor --out " + path + "` makes it",
                  path, errno);
  }
  return parse_machine_rates({std::istreambuf_iterator<char>(file), {}}, path);
}

std::optional<MachineRates> find_machine_rates() {
  const std::string path = machine_rates_path();
  std::error_code error;
  if (environment(kVariable).empty() && !fs::exists(path, error)) return std::nullopt;
  return read_machine_rates(path);
}

}  // namespace sluice
