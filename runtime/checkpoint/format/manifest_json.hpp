// The marks of a manifest's text, and typed access to the fields of a JSON object; every error
// names the field's path. Only for this folder's *_json and *_write sources, because it includes
// nlohmann-json.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {

// A manifest's first line ends with kManifestHeadHash and 16 digits, its text with the tail.
inline constexpr std::string_view kManifestFormat = "sluice-checkpoint";
inline constexpr std::string_view kManifestHeadHash = ",\"head_xxh3\":\"";
inline constexpr std::string_view kManifestTailBegin = ",\"xxh3\":\"", kManifestTailEnd = "\"}\n";
inline constexpr std::size_t kManifestTailBytes =
    kManifestTailBegin.size() + 16 + kManifestTailEnd.size();

class JsonFields {
 public:
  using Json = nlohmann::json;
  // `where`: prefix of field names in messages, such as "files[2]." or "".
  JsonFields(const Json& object, std::string path, std::string where)
      : object_(object), path_(std::move(path)), where_(std::move(where)) {
    if (!object.is_object()) fail("", "is no object");
  }

  [[nodiscard]] const Json* find(const char* name) const {
    const auto at = object_.find(name);
    return at == object_.end() ? nullptr : &*at;
  }
  [[nodiscard]] const Json& at(const char* name) const {
    const Json* const value = find(name);
    if (value == nullptr) fail(name, "is missing");
    return *value;
  }
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t least = 0) const {
    return integer_of(at(name), name, least);
  }
  [[nodiscard]] std::uint64_t unsigned_integer(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number_unsigned()) fail(name, "is no whole number below 2^64");
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] int small_integer(const char* name) const {
    const std::int64_t value = integer(name);
    if (value > std::numeric_limits<int>::max()) fail(name, "is too large");
    return static_cast<int>(value);
  }
  [[nodiscard]] double number(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(name, "is no number");
    return value.get<double>();
  }
  [[nodiscard]] std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail(name, "is no text");
    return value.get<std::string>();
  }
  [[nodiscard]] const Json& list(const char* name) const {
    const Json& value = at(name);
    if (!value.is_array()) fail(name, "is no list");
    return value;
  }
  [[nodiscard]] std::vector<std::int64_t> integers(const char* name) const {
    return integers_of(list(name), name);
  }
  [[nodiscard]] std::vector<std::int64_t> integers_of(const Json& values, const char* name) const {
    if (!values.is_array()) fail(name, "is no list of numbers");
    std::vector<std::int64_t> result;
    result.reserve(values.size());
    for (const Json& value : values) result.push_back(integer_of(value, name, 0));
    return result;
  }
  // 16 hexadecimal digits.
  [[nodiscard]] std::uint64_t hash(const char* name) const {
    const std::vector<std::uint64_t> all = hashes(name);
    if (all.size() != 1) fail(name, "is no checksum of 16 hexadecimal digits");
    return all.front();
  }
  // Any number of hashes, 16 digits each, in one text.
  [[nodiscard]] std::vector<std::uint64_t> hashes(const char* name) const {
    const Json& value = at(name);
    const auto* const digits = value.get_ptr<const std::string*>();
    if (digits == nullptr || digits->size() % 16 != 0) fail(name, "holds no whole checksums");
    std::vector<std::uint64_t> result(digits->size() / 16, 0);
    for (std::size_t i = 0; i < digits->size(); ++i) {
      const char c = (*digits)[i];
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) fail(name, "holds something else than hexadecimal digits");
      result[i / 16] = result[i / 16] << 4U | static_cast<std::uint64_t>(digit);
    }
    return result;
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw CheckpointError("field " + where_ + name + " " + what, path_);
  }

 private:
  [[nodiscard]] std::int64_t integer_of(const Json& value, const char* name,
                                        std::int64_t least) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits || value.get<std::int64_t>() < least) {
      fail(name, "is no whole number from " + std::to_string(least) + " to 2^63");
    }
    return value.get<std::int64_t>();
  }

  const Json& object_;
  std::string path_, where_;
};

}  // namespace sluice
