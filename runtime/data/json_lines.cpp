#include "runtime/data/json_lines.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

// Gives the parser's templates names of their own. Other units instantiate the same templates
// without optimisation, and the linker keeps one instance of each name.
#define JSON_USE_LEGACY_DISCARDED_VALUE_COMPARISON 1
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr const char* kList = "a list";
constexpr const char* kMessages = "a list of messages";
constexpr std::size_t kReadBytes = 256U << 10U;
constexpr std::size_t kKeysNamed = 8;
constexpr std::size_t kLongestKeyNamed = 40;

// Events of nlohmann's parser: keeps one string of the outermost object, builds no tree.
class TextOfKey {
 public:
  TextOfKey(const std::string& key, JsonLine& line) : key_(key), line_(line) {}

  bool null() { return other("null"); }
  bool boolean(bool) { return other("true or false"); }
  bool number_integer(Json::number_integer_t) { return other("a number"); }
  bool number_unsigned(Json::number_unsigned_t) { return other("a number"); }
  bool number_float(Json::number_float_t, const std::string&) { return other("a number"); }
  bool binary(Json::binary_t&) { return other("binary"); }
  bool string(std::string& value) {
    if (depth_ == 1 && taken_) {
      line_.text = std::move(value);
      kind_.clear();
    }
    return true;
  }
  bool start_object(std::size_t) {
    if (depth_ == 0) line_.is_object = true;
    (void)other("an object");
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) {
    (void)other(kList);
    ++depth_;
    return true;
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    // The outermost object, the value's list, the first message.
    if (depth_ == 3 && taken_ && kind_ == kList && (name == "role" || name == "from")) {
      kind_ = kMessages;
    }
    if (depth_ != 1) return true;
    taken_ = name == key_;
    line_.has_key = line_.has_key || taken_;
    if (!taken_ && keys_.size() < kKeysNamed) {
      keys_.push_back(
          name.substr(0, valid_utf8_prefix(std::string_view(name).substr(0, kLongestKeyNamed))));
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    has_too_large_ = error.id == kJsonNumberTooLarge;
    // "[json.exception.parse_error.101] parse error at line 1, column 7: REASON; last read: BYTES"
    std::string reason = error.what();
    for (const std::string_view before : {"] ", ": "}) {
      const std::size_t at = reason.find(before);
      if (at < 64) reason.erase(0, at + before.size());
    }
    reason = reason.substr(0, reason.find("; last read"));
    line_.error = "not valid JSON at byte " + std::to_string(position) + " of the line: " + reason;
    return false;
  }

  // The parser stopped at a number beyond the range of a double: the line may be JSON.
  [[nodiscard]] bool has_too_large() const { return has_too_large_; }

  // After the last event.
  void finish() {
    line_.is_json = line_.error.empty();
    if (!line_.is_json) return;
    if (!line_.is_object) {
      line_.error = "not a JSON object";
    } else if (!line_.has_key) {
      line_.error = "no key '" + key_ + "'" + other_keys("its");
    } else if (!kind_.empty()) {
      line_.error = "the value of '" + key_ + "' is " + kind_ + ", not a string";
      line_.error += kind_ == kMessages ? "; conversations are for data.sft" : other_keys("other");
    }
  }

 private:
  [[nodiscard]] std::string other_keys(const char* which) const {
    std::string names;
    for (const std::string& name : keys_) names += (names.empty() ? "" : ", ") + name;
    if (!names.empty()) names = std::string(" (") + which + " keys: " + names + ")";
    return names + "; data.json_key (of a command: --json-key) names the key of the text";
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool other(const char* kind) {
    if (depth_ == 1 && taken_) kind_ = kind;
    return true;
  }

  const std::string& key_;
  JsonLine& line_;
  std::int64_t depth_ = 0;
  bool has_too_large_ = false;
  bool taken_ = false;  // the last key of the outermost object is key_
  std::string kind_;    // of the key's value where it is no string
  std::vector<std::string> keys_;
};

// The value of "\uXXXX" at the start of `text`.
std::optional<unsigned> escape_at(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(2, 4)) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<unsigned>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<unsigned>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

bool is_high(std::optional<unsigned> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool is_low(std::optional<unsigned> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

bool may_have_surrogates(std::string_view line) {
  return line.find("\\ud") != std::string_view::npos || line.find("\\uD") != std::string_view::npos;
}

// Whether the text is a number of JSON: from_chars() takes more (01, .5, 7.).
bool is_json_number(std::string_view text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  const std::size_t begin = text.starts_with('-') ? 1 : 0;
  const std::size_t dot = text.find('.');
  if (!digit(begin) || (text[begin] == '0' && digit(begin + 1))) return false;
  return dot == std::string_view::npos || (digit(dot - 1) && digit(dot + 1));
}

// `line` with 0 for each number beyond the range of a double; bytes keep their places.
std::string without_too_large(std::string_view line) {
  std::string mended(line);
  for (std::size_t i = 0; i < mended.size();) {
    if (mended[i] == '"') {
      for (++i; i < mended.size() && mended[i] != '"'; ++i) i += mended[i] == '\\' ? 1U : 0U;
      if (i >= mended.size()) break;
    }
    const std::size_t end = std::min(mended.find_first_not_of("+-.eE0123456789", i), mended.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(mended.data() + i, mended.data() + end, value);
    if (error == std::errc::result_out_of_range && stop == mended.data() + end &&
        is_json_number(std::string_view(mended).substr(i, end - i))) {
      std::fill(mended.begin() + static_cast<std::ptrdiff_t>(i),
                mended.begin() + static_cast<std::ptrdiff_t>(end), ' ');
      mended[i] = '0';
    }
    i = std::max(end, i + 1);
  }
  return mended;
}

JsonLine parse_text_of(std::string_view line, const std::string& key, bool mended) {
  JsonLine result;
  TextOfKey events(key, result);
  (void)Json::sax_parse(line.begin(), line.end(), &events);
  if (events.has_too_large() && !mended) return parse_text_of(without_too_large(line), key, true);
  events.finish();
  return result;
}

}  // namespace

// A backslash stands inside strings only, so the line need not be parsed for this.
std::string without_lone_surrogates(std::string_view line) {
  std::string mended(line);
  for (std::size_t i = 0; (i = mended.find('\\', i)) != std::string::npos;) {
    const std::string_view rest = std::string_view(mended).substr(i);
    const auto unit = escape_at(rest);
    if (is_high(unit) && is_low(escape_at(rest.substr(6)))) {
      i += 12;
      continue;
    }
    if (is_high(unit) || is_low(unit)) mended.replace(i, 6, "\\ufffd");
    i += unit ? 6U : 2U;
  }
  return mended;
}

// The rest of a line that was too long.
bool LineReader::skip_line(std::int64_t end) {
  for (skipping_ = false;;) {
    const std::size_t line_end = held_.find('\n', from_);
    from_ = line_end == std::string::npos ? held_.size() : line_end + 1;
    const bool inside = held_offset_ + static_cast<std::int64_t>(from_) < end;
    if (line_end != std::string::npos) return inside;
    if (!inside || source_.at_end()) return false;
    read_more(kReadBytes);
  }
}

void LineReader::read_more(std::size_t bytes) {
  held_.erase(0, from_);
  held_offset_ += static_cast<std::int64_t>(from_);
  from_ = 0;
  const std::size_t before = held_.size();
  held_.resize(before + bytes);
  held_.resize(before + source_.read(std::span(held_).subspan(before)));
}

LineReader::Next LineReader::next(std::string_view& line) {
  if (skipping_) (void)skip_line(std::numeric_limits<std::int64_t>::max());
  std::size_t searched = from_;
  for (;;) {
    const std::size_t end = held_.find('\n', searched);
    const bool last = end == std::string::npos && source_.at_end();
    if (last && from_ == held_.size()) return Next::kEnd;
    offset_ = held_offset_ + static_cast<std::int64_t>(from_);
    if (end != std::string::npos || last) {
      const std::size_t stop = last ? held_.size() : end;
      line = std::string_view(held_).substr(from_, stop - from_);
      if (line.ends_with('\r')) line.remove_suffix(1);
      from_ = last ? stop : stop + 1;
      ++number_;
      return line.size() > longest_bytes_ ? Next::kTooLong : Next::kLine;
    }
    if (held_.size() - from_ > longest_bytes_) {
      ++number_;
      skipping_ = true;
      return Next::kTooLong;
    }
    searched = held_.size() - from_;
    // Doubling keeps the search of a long line linear.
    read_more(std::max(kReadBytes, searched));
  }
}

JsonLine parse_json_line(std::string_view line, const std::string& key) {
  if (!may_have_surrogates(line)) return parse_text_of(line, key, false);
  return parse_text_of(without_lone_surrogates(line), key, false);
}

}  // namespace sluice
