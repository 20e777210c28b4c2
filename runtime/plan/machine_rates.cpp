#include "runtime/plan/machine_rates.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/host_name.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "SLUICE_RATES";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Empty where the environment names no place.
std::string path_of_environment() {
  if (std::string path = environment(kVariable); !path.empty()) return path;
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) return "";
    cache = home + "/.cache";
  }
  return cache + "/sluice/rates-" + host_name() + ".json";
}

}  // namespace

std::string machine_rates_path() {
  std::string path = path_of_environment();
  if (!path.empty()) return path;
  throw ConfigError(
      "no place for the rates file: HOME, XDG_CACHE_HOME and SLUICE_RATES are not set; set one or "
      "give --out");
}

void write_machine_rates(const MachineRates& rates, const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  try {
    if (error) throw_io_error("create the folder", folder.string(), error.value());
    write_output_file(path, machine_rates_json(rates));
  } catch (const IoError& failed) {
    throw IoError("cannot write the rates file " + path + ": " +
                      std::generic_category().message(failed.error_number()) +
                      "; give another with --out or SLUICE_RATES",
                  path, failed.error_number());
  }
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
  const std::string path = path_of_environment();
  if (path.empty()) return std::nullopt;
  std::error_code error;
  if (environment(kVariable).empty() && !fs::exists(path, error)) return std::nullopt;
  return read_machine_rates(path);
}

}  // namespace sluice
