// The header of a safetensors file. The parser builds no JSON tree, so a header of a hundred
// megabytes needs only the memory of its tensor entries.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/format.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
constexpr std::int64_t kLengthBytes = 8;
constexpr std::size_t kMaxDims = 64;

// Bytes of a tensor; -1 if a dimension is negative or the number exceeds 63 bits. A dimension of 0
// makes the tensor empty, however large the other dimensions are.
std::int64_t bytes_of(TensorDType dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = size_of(dtype);
  bool fits = true, empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return -1;
    empty = empty || dim == 0;
    fits = fits && !__builtin_mul_overflow(bytes, dim, &bytes);
  }
  return empty ? 0 : fits ? bytes : -1;
}

// The scan's position: in the root object, a tensor's object, one of its two lists, or
// __metadata__.
enum class Place { kBefore, kRoot, kTensor, kShape, kOffsets, kMetadata, kAfter };

class HeaderScan final : public nlohmann::json_sax<Json> {
 public:
  HeaderScan(std::string path, std::int64_t data_begin) : path_(std::move(path)) {
    data_begin_ = data_begin;
  }
  std::vector<TensorEntry> tensors;
  TextMap metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no whole one below 2^64");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail("a number of its " + key_ + " is over 2^63");
    }
    const auto number = static_cast<std::int64_t>(value);
    if (place_ == Place::kShape) {
      if (entry_.shape.size() == kMaxDims) fail("has more than 64 dimensions");
      entry_.shape.push_back(number);
    } else {
      if (offsets_ == 2) fail("data_offsets holds more than two numbers");
      (offsets_ == 0 ? begin_ : end_) = number;
      ++offsets_;
    }
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = text;
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return unexpected("a text");
    const auto dtype = parse_tensor_dtype(text);
    if (!dtype) fail(unknown_dtype(text));
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kBefore) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && key_ == "__metadata__") {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kRoot) {
      place_ = Place::kTensor;
      entry_ = TensorEntry{key_, TensorDType::kF32, {}, 0, 0};
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
      offsets_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kRoot ? Place::kAfter : Place::kRoot;
    if (place_ == Place::kRoot) key_.clear();
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kRoot) {
      if (!names_.insert(text).second) fail_at(text, "occurs twice");
    } else if (place_ == Place::kTensor) {
      bool* const seen = text == "dtype"          ? &seen_dtype_
                         : text == "shape"        ? &seen_shape_
                         : text == "data_offsets" ? &seen_offsets_
                                                  : nullptr;
      if (seen == nullptr) fail("has the key " + text + ", which safetensors does not know");
      if (*seen) fail("has the key " + text + " twice");
      *seen = true;
    } else if (metadata.contains(text)) {
      throw CheckpointError("__metadata__ has the key " + text + " twice", path_);
    }
    key_ = text;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string what = error.what();
    // Keeps the cause of "[json.exception.parse_error.101] parse error at ... - cause".
    if (const std::size_t cause = what.find("- "); cause != std::string::npos) {
      what.erase(0, cause + 2);
    }
    throw CheckpointError("the safetensors header is not JSON: " + what, path_, "",
                          kLengthBytes + static_cast<std::int64_t>(position));
  }

 private:
  [[noreturn]] void fail_at(const std::string& name, const std::string& what) const {
    throw CheckpointError(what, path_, name);
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(entry_.name, what); }

  bool unexpected(const char* what) const {
    const bool in_tensor =
        place_ == Place::kTensor || place_ == Place::kShape || place_ == Place::kOffsets;
    throw CheckpointError("the safetensors header has " + std::string(what) +
                              " where none belongs" +
                              (key_.empty() ? "" : ", under the key " + key_),
                          path_, in_tensor ? entry_.name : "");
  }

  static std::string unknown_dtype(const std::string& name) {
    if (name.starts_with("F8") || name.starts_with("F6") || name.starts_with("F4")) {
      return "has dtype " + name + ": 8-bit and smaller floats are not supported; store it in BF16";
    }
    return "has dtype " + name + "; known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL";
  }

  void finish_tensor() {
    if (!seen_dtype_ || !seen_shape_ || !seen_offsets_ || offsets_ != 2) {
      fail("has no dtype, shape and data_offsets of two numbers");
    }
    const std::int64_t bytes = bytes_of(entry_.dtype, entry_.shape);
    if (bytes < 0) fail("has a shape of more than 2^63 bytes");
    if (end_ < begin_ || end_ - begin_ != bytes) {
      fail(format_text("has data_offsets [{}, {}), but its shape and dtype make {} bytes", begin_,
                       end_, bytes));
    }
    if (begin_ > std::numeric_limits<std::int64_t>::max() - data_begin_ - bytes) {
      fail("has an offset over 2^63");
    }
    entry_.offset = data_begin_ + begin_;
    entry_.bytes = bytes;
    tensors.push_back(std::move(entry_));
  }

  std::string path_, key_;
  std::int64_t data_begin_ = 0;
  Place place_ = Place::kBefore;
  std::unordered_set<std::string> names_;
  TensorEntry entry_;
  std::int64_t begin_ = 0, end_ = 0;
  int offsets_ = 0;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
};

// Checks that the tensors follow each other from the header to the end of the file without a gap.
void check_places(SafetensorsHeader& header, std::int64_t file_bytes, const std::string& path) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  std::int64_t end = header.header_bytes;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.offset != end) {
      throw CheckpointError(
          entry.offset < end
              ? format_text("overlaps the tensor before it, which ends at byte {}", end)
              : format_text("leaves a hole: the tensor before it ends at byte {}", end),
          path, entry.name, entry.offset);
    }
    end += entry.bytes;
    if (end > file_bytes) {
      throw CheckpointError(
          format_text("reaches to byte {}, but the file has only {} bytes: it was cut short", end,
                      file_bytes),
          path, entry.name, entry.offset);
    }
  }
  if (end != file_bytes) {
    throw CheckpointError(
        format_text("the tensors end here, but the file has {} bytes", file_bytes), path, "", end);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> begin,
                                           std::int64_t file_bytes, const std::string& path) {
  if (file_bytes < kLengthBytes || begin.size() < kLengthBytes) {
    throw CheckpointError(format_text("too short for a safetensors file: {} bytes", file_bytes),
                          path);
  }
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/";
  const std::string_view start(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (start.starts_with(kPointer)) {
    throw CheckpointError(
        "is a pointer of Git LFS, not the file itself: run `git lfs pull` in its folder", path);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    throw CheckpointError(
        format_text(
            "the header's length is {} bytes, over the limit of 100 MB: not a safetensors file?",
            length),
        path, "", 0);
  }
  const auto header_bytes = static_cast<std::int64_t>(length) + kLengthBytes;
  if (header_bytes > file_bytes || header_bytes > static_cast<std::int64_t>(begin.size())) {
    throw CheckpointError(format_text("the header needs {} bytes, but the file has only {}",
                                      header_bytes, file_bytes),
                          path, "", 0);
  }
  const auto* const text = reinterpret_cast<const char*>(begin.data()) + kLengthBytes;
  if (length == 0 || text[0] != '{') {
    throw CheckpointError("the safetensors header does not begin with '{'", path, "", kLengthBytes);
  }
  // The JSON parser takes a NUL for the end of its text and would ignore the bytes behind it.
  if (const void* const nul = std::memchr(text, 0, length)) {
    throw CheckpointError("the safetensors header holds a NUL byte", path, "",
                          kLengthBytes + (static_cast<const char*>(nul) - text));
  }
  HeaderScan scan(path, header_bytes);
  Json::sax_parse(text, text + length, &scan);
  SafetensorsHeader header{header_bytes, std::move(scan.tensors), std::move(scan.metadata)};
  check_places(header, file_bytes, path);
  return header;
}

SafetensorsLayout plan_safetensors(std::span<const TensorDecl> tensors, const TextMap& metadata) {
  SafetensorsLayout layout;
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].dtype) > size_of(tensors[b].dtype);
  });
  std::unordered_set<std::string_view> names{"__metadata__"};
  layout.tensors.resize(tensors.size());
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + Json(metadata).dump();
  std::int64_t end = 0;
  for (const std::size_t i : order) {
    const TensorDecl& decl = tensors[i];
    if (!names.insert(decl.name).second) {
      throw Error("a safetensors file cannot hold two tensors called " + decl.name);
    }
    const std::int64_t bytes = bytes_of(decl.dtype, decl.shape);
    if (bytes < 0 || bytes > std::numeric_limits<std::int64_t>::max() / 2 - end) {
      throw Error("the shape of tensor " + decl.name + " has a negative or too large dimension");
    }
    layout.tensors[i] = {decl.name, decl.dtype, decl.shape, end, bytes};
    if (json.size() > 1) json += ',';
    json += format_text("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        Json(decl.name).dump(), name_of(decl.dtype), Json(decl.shape).dump(), end,
                        end + bytes);
    end += bytes;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the tensors' bytes
  if (static_cast<std::int64_t>(json.size()) > kMaxSafetensorsHeaderBytes) {
    throw Error("the header of a safetensors file would be over 100 MB: use more files");
  }
  const std::uint64_t length = json.size();
  layout.header.resize(kLengthBytes);
  std::memcpy(layout.header.data(), &length, sizeof(length));
  layout.header += json;
  const auto data_begin = static_cast<std::int64_t>(layout.header.size());
  for (TensorEntry& entry : layout.tensors) entry.offset += data_begin;
  layout.file_bytes = data_begin + end;
  return layout;
}

}  // namespace sluice
