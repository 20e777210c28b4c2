#include "runtime/checkpoint/hf/hf_json.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

// Follows the parser's events and throws when a limit is exceeded.
class Guard {
 public:
  Guard(const std::string& path, int depth) : path_(path), most_(depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= most_) {
        throw IoError(format_text("{}: nested deeper than {} levels", path_, most_), path_);
      }
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      throw IoError(path_ + ": the key " + shown(parsed) + " stands twice in one object", path_);
    }
    return true;
  }

 private:
  const std::string& path_;
  int most_;
  std::vector<std::set<std::string>> keys_;  // keys of the open objects
};

}  // namespace

Json parse_hf_json(const std::string& path, std::string_view text, HfJsonLimits limits) {
  if (static_cast<std::int64_t>(text.size()) > limits.bytes) {
    throw IoError(format_text("{} is larger than {} bytes", path, limits.bytes), path);
  }
  // The JSON parser takes a NUL for the end of its text and would ignore the bytes behind it.
  if (text.find('\0') != std::string_view::npos) {
    throw IoError(path + " is not valid JSON: it holds a NUL byte", path);
  }
  Json value;
  try {
    Guard guard(path, limits.depth);
    value = Json::parse(text, [&guard](int depth, Json::parse_event_t event, Json& parsed) {
      return guard(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    throw IoError(path + " is not valid JSON: " + error.what(), path);
  }
  if (!value.is_object()) throw IoError(path + " is not a JSON object", path);
  return value;
}

Json read_hf_json(const std::string& path, HfJsonLimits limits) {
  return parse_hf_json(path, read_text(local_file_system(), path, limits.bytes), limits);
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 80;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace sluice
