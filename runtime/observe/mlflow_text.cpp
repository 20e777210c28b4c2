#include "runtime/observe/mlflow_text.hpp"

#include <charconv>
#include <cstdio>
#include <string_view>

#include "runtime/observe/event_file.hpp"
#include "runtime/observe/mlflow_store.hpp"

namespace sluice {
namespace {

constexpr std::size_t kLongestName = 250;  // MLflow's limit; 255 is that of file systems

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(byte));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string line_of(std::string_view key, std::string_view value) {
  return std::string(key).append(": ").append(value).append("\n");
}

// Length of the valid UTF-8 sequence at the start of `text`; 0: none.
std::size_t sequence_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool beyond = (lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f);
  return overlong || beyond ? 0 : length;
}

// The place of the line "key: ..." and of its end; npos if the key is missing.
std::pair<std::size_t, std::size_t> find_line(const std::string& meta, std::string_view key) {
  const std::string begin = std::string(key) + ":";
  for (std::size_t at = 0; at < meta.size();) {
    const std::size_t end = std::min(meta.find('\n', at), meta.size());
    if (meta.compare(at, begin.size(), begin) == 0) return {at, end};
    at = end + 1;
  }
  return {std::string::npos, std::string::npos};
}

}  // namespace

std::string mlflow_value(std::string_view text) {
  constexpr std::string_view kCut = "...";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text.substr(at));
    const std::string_view next = length == 0 ? "?" : text.substr(at, length);
    const std::size_t rest = text.size() - at - std::max<std::size_t>(length, 1);
    if (out.size() + next.size() + std::min(rest, kCut.size()) > kMostMlflowValue) {
      return out.append(kCut);
    }
    out += next;
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string mlflow_name(std::string_view tag) {
  constexpr std::string_view kSet = "eval/loss/";
  const bool of_set = tag.starts_with(kSet);
  std::string name(of_set ? "eval/loss." : "");
  for (const char c : of_set ? tag.substr(kSet.size()) : tag) {
    name += is_word(c) || (c == '/' && !of_set) ? c : '_';
  }
  const std::string_view plain = of_set ? tag.substr(kSet.size()) : tag;
  if (name.ends_with(plain) && name.size() <= kLongestName) return name;
  char sum[16];
  std::snprintf(sum, sizeof sum, "-%08x", static_cast<unsigned>(crc32c(tag)));
  return name.substr(0, kLongestName - 9) + sum;
}

std::string run_meta_text(const MlflowRunMeta& meta) {
  return line_of("artifact_uri", yaml_quoted(meta.artifact_uri)) + line_of("end_time", "null") +
         line_of("entry_point_name", "''") +
         line_of("experiment_id", yaml_quoted(meta.experiment)) +
         line_of("lifecycle_stage", "active") + line_of("run_id", yaml_quoted(meta.run)) +
         line_of("run_name", yaml_quoted(mlflow_value(meta.name))) +
         line_of("run_uuid", yaml_quoted(meta.run)) + line_of("source_name", "''") +
         line_of("source_type", "4") + line_of("source_version", "''") +
         line_of("start_time", std::to_string(meta.start_ms)) +
         line_of("status", std::to_string(static_cast<int>(MlflowStatus::kRunning))) +
         line_of("tags", "[]") + line_of("user_id", yaml_quoted(mlflow_value(meta.user)));
}

std::string experiment_meta_text(std::string_view id, std::string_view name,
                                 const std::string& artifact_uri, std::int64_t now_ms) {
  const std::string now = std::to_string(now_ms);
  return line_of("artifact_location", yaml_quoted(artifact_uri)) + line_of("creation_time", now) +
         line_of("experiment_id", yaml_quoted(id)) + line_of("last_update_time", now) +
         line_of("lifecycle_stage", "active") + line_of("name", yaml_quoted(name));
}

std::string with_meta_value(const std::string& meta, std::string_view key, std::string_view value) {
  const auto [begin, end] = find_line(meta, key);
  std::string line = line_of(key, value);
  if (begin == std::string::npos) {
    const bool whole = meta.empty() || meta.back() == '\n';
    return meta + (whole ? "" : "\n") + line;
  }
  line.pop_back();
  return meta.substr(0, begin) + line + meta.substr(end);
}

std::string meta_value(const std::string& meta, std::string_view key) {
  const auto [begin, end] = find_line(meta, key);
  if (begin == std::string::npos) return "";
  std::string_view value =
      std::string_view(meta).substr(begin + key.size() + 1, end - begin - key.size() - 1);
  constexpr std::string_view kAround = " \t\r'\"";
  const std::size_t first = value.find_first_not_of(kAround);
  if (first == std::string_view::npos) return "";
  return std::string(value.substr(first, value.find_last_not_of(kAround) - first + 1));
}

std::string file_uri(const std::string& path) {
  std::string uri = "file://";
  for (const char c : path) {
    char code[8];
    if (is_word(c) || c == '/' || c == '~') {
      uri += c;
    } else {
      std::snprintf(code, sizeof code, "%%%02X",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      uri += code;
    }
  }
  return uri;
}

std::string experiment_id_of(std::string_view name) {
  constexpr std::uint64_t kSmallest = 100'000'000'000'000'000;  // 18 digits
  const std::uint64_t sums = std::uint64_t{crc32c(name)} << 32 | crc32c(std::string(name) + "/");
  return std::to_string(kSmallest + sums % (9 * kSmallest));
}

std::int64_t step_of_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return -1;
  const std::string_view digits = line.substr(second + 1);
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc() && end != digits.data() ? step : -1;
}

}  // namespace sluice
