#include "runtime/data/corpus/work_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kLargestLog = std::int64_t{1} << 30;
constexpr const char* kWork = "work";
constexpr const char* kVersion = "1";

std::string hash_text(std::string_view text) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(hash64(std::as_bytes(std::span(text)))));
  return digits.data();
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Counts parse_counts(std::string_view text) {
  Counts counts;
  for (const std::string_view part : split(text, ' ')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    counts[std::string(part.substr(0, equals))] = number_of(part.substr(equals + 1)).value_or(0);
  }
  return counts;
}

std::string format_counts(const Counts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : " ") + name + "=" + std::to_string(count);
  }
  return text;
}

}  // namespace

void add_counts(Counts& sum, const Counts& more) {
  for (const auto& [name, count] : more) sum[name] += count;
}

WorkLog::WorkLog(const std::string& folder, const std::string& fingerprint)
    : folder_(folder), path_(folder + "/work.log") {
  make_folder(folder);
  const std::string lock_path = folder + "/work.lock";
  if (!lock_.take(lock_path, std::chrono::milliseconds(0))) {
    throw IoError("another process writes to the folder " + folder +
                      "; wait for its end, or choose another folder",
                  folder);
  }
  read(fingerprint);
}

void WorkLog::read(const std::string& fingerprint) {
  const std::string text = path_exists(path_) ? read_whole_file(path_, kLargestLog) : "";
  std::size_t good = 0;
  bool begun = false;
  while (good < text.size()) {
    const std::size_t end = text.find('\n', good);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(good, end - good);
    const std::size_t tab = line.rfind('\t');
    if (tab == std::string_view::npos || hash_text(line.substr(0, tab)) != line.substr(tab + 1)) {
      break;
    }
    const std::vector<std::string_view> fields = split(line.substr(0, tab), '\t');
    if (fields.size() != 3) break;
    if (!begun && (fields[0] != kWork || fields[1] != kVersion || fields[2] != fingerprint)) {
      throw IoError("the folder " + folder_ +
                        " holds the results of other inputs or options; remove the folder, or "
                        "choose another one",
                    folder_);
    }
    if (begun) {
      finished_[{std::string(fields[0]), number_of(fields[1]).value_or(-1)}] =
          parse_counts(fields[2]);
    }
    begun = true;
    good = end + 1;
  }
  file_ = open_descriptor(path_, O_RDWR | O_CREAT);
  if (!file_) throw_io_error("write", path_, errno, write_remedy(errno));
  if (::ftruncate(file_.get(), static_cast<off_t>(good)) != 0 ||
      ::lseek(file_.get(), 0, SEEK_END) < 0) {
    throw_io_error("write", path_, errno, write_remedy(errno));
  }
  if (begun) return;
  append(kWork, kVersion, fingerprint);
  if (const int error = sync_folder(folder_)) throw_io_error("sync", folder_, error);
}

void WorkLog::append(const std::string& stage, const std::string& unit,
                     const std::string& content) {
  std::string line = stage + "\t" + unit + "\t" + content;
  line += '\t' + hash_text(line) + '\n';
  int error = write_fully(file_.get(), std::as_bytes(std::span(line)));
  if (error == 0 && ::fdatasync(file_.get()) != 0) error = errno;
  if (error != 0) throw_io_error("write", path_, error, write_remedy(error));
}

const Counts* WorkLog::find(const std::string& stage, std::int64_t unit) const {
  const auto found = finished_.find({stage, unit});
  return found == finished_.end() ? nullptr : &found->second;
}

void WorkLog::finish(const std::string& stage, std::int64_t unit, const Counts& counts) {
  failpoint("corpus.finish");
  append(stage, std::to_string(unit), format_counts(counts));
  finished_[{stage, unit}] = counts;
  failpoint("corpus.finished");
}

}  // namespace sluice
