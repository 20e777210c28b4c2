#include "runtime/checkpoint/format/step_name.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/error.hpp"

namespace sluice {
namespace {

// Calls f(). Ignores the error that a path is a directory or that a directory is not empty.
template <class F>
void unless_directory(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    const int cause = error.error_number();
    if (cause != EISDIR && cause != EPERM && cause != ENOTEMPTY && cause != EEXIST) throw;
  }
}

}  // namespace

std::string step_name(std::int64_t step, std::int64_t attempt) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  std::string text = name.data();
  if (attempt > 0) text.append(".").append(std::to_string(attempt));
  return text;
}

std::optional<StepName> parse_step_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  StepName result;
  const char* const end = name.data() + name.size();
  auto parsed = std::from_chars(name.data() + kPrefix.size(), end, result.step);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.') {
    parsed = std::from_chars(parsed.ptr + 1, end, result.attempt);
  }
  // Accepts only names that step_name() writes. "step-7", "step--1" or "step-00000007.0" are files
  // of other programs.
  if (parsed.ec != std::errc() || parsed.ptr != end || result.step < 0 || result.attempt < 0 ||
      name != step_name(result.step, result.attempt)) {
    return std::nullopt;
  }
  return result;
}

void remove_checkpoint(FileSystem& files, const std::string& path) {
  const auto status = files.stat(path);
  if (status && status->link) {  // the target of the link is not part of this folder: it stays
    files.unlink(path);
    return;
  }
  const std::vector<std::string> names = files.list(path);
  for (const std::string& name : names) {
    if (name != kManifestName) continue;
    files.unlink(join_path(path, name));
    files.sync_dir(path);
  }
  for (const std::string& name : names) {
    if (name == kManifestName) continue;
    unless_directory([&] { files.unlink(join_path(path, name)); });
  }
  unless_directory([&] { files.remove_dir(path); });
}

}  // namespace sluice
