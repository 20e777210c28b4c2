#include "tests/runtime/checkpoint/torch_writer.hpp"

#include <array>

namespace sluice::testing {
namespace {

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8U) out += static_cast<char>(value & 0xFFU);
}

// Bit by bit: nothing that it could have in common with the reader's.
std::uint32_t slow_crc(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

std::string numbers(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const std::int64_t value : values) out += pickled_int(static_cast<std::int32_t>(value));
  return out + "t";
}

std::string entry(const ZipPart& part, bool directory, std::uint64_t header) {
  std::string out = directory ? "PK\1\2" : "PK\3\4";
  if (directory) put(out, 0, 2);
  put(out, 0, 2);
  put(out, 0, 2);
  put(out, 0, 2);  // stored
  put(out, 0, 4);
  put(out, slow_crc(part.bytes), 4);
  put(out, part.bytes.size(), 4);
  put(out, part.bytes.size(), 4);
  put(out, part.name.size(), 2);
  put(out, 0, 2);
  if (directory) {
    put(out, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put(out, header, 4);
  }
  return out + part.name;
}

}  // namespace

std::string pickled_text(const std::string& text) {
  std::string out = "X";
  put(out, text.size(), 4);
  return out + text;
}

std::string pickled_int(std::int32_t value) {
  std::string out = "J";
  put(out, static_cast<std::uint32_t>(value), 4);
  return out;
}

std::string pickled_tensor(const WrittenTensor& tensor, const std::string& key) {
  std::vector<std::int64_t> strides = tensor.strides;
  if (strides.empty()) {
    strides.resize(tensor.shape.size());
    std::int64_t stride = 1;
    for (std::size_t d = tensor.shape.size(); d > 0; stride *= tensor.shape[--d]) {
      strides[d - 1] = stride;
    }
  }
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + pickled_text("storage") +
         "ctorch\nFloatStorage\n" + pickled_text(key) + pickled_text("cpu") +
         pickled_int(static_cast<std::int32_t>(tensor.values.size())) + "tQ" + pickled_int(0) +
         numbers(tensor.shape) + numbers(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

std::string zipped(const std::vector<ZipPart>& parts, bool zip64) {
  std::string out;
  std::string directory;
  for (const ZipPart& part : parts) {
    directory += entry(part, true, out.size());
    out += entry(part, false, 0) + part.bytes;
  }
  const std::size_t at = out.size();
  out += directory;
  if (zip64) {
    const std::size_t end = out.size();
    out += "PK\6\6";
    put(out, 44, 8);
    put(out, 0, 2 + 2);
    put(out, 0, 4 + 4);
    put(out, parts.size(), 8);
    put(out, parts.size(), 8);
    put(out, directory.size(), 8);
    put(out, at, 8);
    out += "PK\6\7";
    put(out, 0, 4);
    put(out, end, 8);
    put(out, 1, 4);
  }
  out += "PK\5\6";
  put(out, 0, 4);
  put(out, parts.size(), 2);
  put(out, parts.size(), 2);
  put(out, directory.size(), 4);
  put(out, at, 4);
  put(out, 0, 2);
  return out;
}

std::string torch_file(const std::string& body,
                       const std::vector<std::span<const float>>& storages) {
  std::vector<ZipPart> parts{{"archive/data.pkl", "\x80\x02" + body + "."},
                             {"archive/byteorder", "little"}};
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto bytes = std::as_bytes(storages[i]);
    parts.push_back({"archive/data/" + std::to_string(i),
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  parts.push_back({"archive/version", "3\n"});
  return zipped(parts);
}

std::string torch_state(const WrittenTensor& tensor, bool in_dictionary) {
  const std::string value = pickled_tensor(tensor, "0");
  return torch_file(in_dictionary ? "}" + pickled_text("param") + value + "s" : value,
                    {tensor.values});
}

}  // namespace sluice::testing
