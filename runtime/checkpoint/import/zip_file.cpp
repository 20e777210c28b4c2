#include "runtime/checkpoint/import/zip_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/format.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kDirectoryEntryBytes = 46;
constexpr std::int64_t kEnd64Bytes = 56;
constexpr std::int64_t kEnd64LocatorBytes = 20;
constexpr std::int64_t kEndBytes = 22;
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;   // the number is in the zip64 field
constexpr std::uint32_t kEncrypted = 0x2041;  // bits 0, 6 and 13 of an entry's flags

// Little-endian numbers at offsets of the file, with a check of the file's length.
class Bytes {
 public:
  Bytes(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(file_.size()); }
  [[nodiscard]] std::uint16_t u16(std::int64_t at) const { return number<std::uint16_t>(at); }
  [[nodiscard]] std::uint32_t u32(std::int64_t at) const { return number<std::uint32_t>(at); }
  // A size or an offset. Throws for 2^63 and more.
  [[nodiscard]] std::int64_t i64(std::int64_t at) const {
    const auto value = number<std::uint64_t>(at);
    if (value > INT64_MAX) fail("holds a number beyond any file", at);
    return static_cast<std::int64_t>(value);
  }
  [[nodiscard]] std::string text(std::int64_t at, std::int64_t length) const {
    need(at, length);
    return {reinterpret_cast<const char*>(file_.data()) + at, static_cast<std::size_t>(length)};
  }
  void need(std::int64_t at, std::int64_t length) const {
    if (at < 0 || length < 0 || length > size() || at > size() - length) {
      fail("ends in the middle of its zip directory", std::clamp<std::int64_t>(at, 0, size()));
    }
  }
  [[noreturn]] void fail(const std::string& what, std::int64_t at) const {
    throw CheckpointError(what + ": not a whole file of torch.save", path_, "", at);
  }

 private:
  template <class T>
  [[nodiscard]] T number(std::int64_t at) const {
    need(at, static_cast<std::int64_t>(sizeof(T)));
    T value = 0;  // zip files and all supported machines are little-endian
    std::memcpy(&value, file_.data() + at, sizeof value);
    return value;
  }
  std::span<const std::byte> file_;
  const std::string& path_;
};

struct Directory {
  std::int64_t offset = 0, bytes = 0, entries = 0;
};

Directory find_directory(const Bytes& file) {
  const std::int64_t end = file.size() - kEndBytes;
  if (end < 0 || file.u32(end) != kEnd || file.u16(end + 20) != 0) {
    file.fail("has no zip directory at its end", std::max<std::int64_t>(end, 0));
  }
  Directory found{file.u32(end + 16), file.u32(end + 12), file.u16(end + 10)};
  if (file.u16(end + 4) != 0 || file.u16(end + 6) != 0 || file.u16(end + 8) != found.entries) {
    file.fail("is one of several parts of a zip", end);
  }
  std::int64_t behind = end;  // offset of the record that follows the directory
  const std::int64_t locator = end - kEnd64LocatorBytes;
  if (locator >= 0 && file.u32(locator) == kEnd64Locator) {
    const std::int64_t end64 = file.i64(locator + 8);
    if (end64 != locator - kEnd64Bytes || file.u32(end64) != kEnd64) {
      file.fail("has no zip64 directory where it says", locator);
    }
    found = {file.i64(end64 + 48), file.i64(end64 + 40), file.i64(end64 + 32)};
    if (file.u32(locator + 4) != 0 || file.u32(locator + 16) != 1 || file.u32(end64 + 16) != 0 ||
        file.u32(end64 + 20) != 0 || file.i64(end64 + 24) != found.entries) {
      file.fail("is one of several parts of a zip", end64);
    }
    behind = end64;
  }
  if (found.bytes > behind || found.offset != behind - found.bytes) {
    file.fail("has a zip directory that does not end where the file does", end);
  }
  return found;
}

struct Listed {
  ZipEntry entry;
  std::int64_t header = 0;  // offset of the local header
};

// Reads the numbers that did not fit from the zip64 field: size, packed size and header, in this
// order.
void read_zip64(const Bytes& file, std::int64_t at, std::int64_t length, std::int64_t& size,
                std::int64_t& packed, std::int64_t& header) {
  const std::int64_t end = at + length;
  while (at + 4 <= end) {
    const std::int64_t field = file.u16(at + 2);
    std::int64_t value = at + 4;
    if (field > end - value) file.fail("has a field that is longer than its entry", at);
    if (file.u16(at) == 1) {
      for (std::int64_t* number : {&size, &packed, &header}) {
        if (*number != kIn64) continue;
        if (value + 8 > at + 4 + field) file.fail("lacks a zip64 number", at);
        *number = file.i64(value);
        value += 8;
      }
      return;
    }
    at = value + field;
  }
}

Listed read_listed(const Bytes& file, std::int64_t at, std::int64_t end, const ZipLimits& limits,
                   std::int64_t& next) {
  if (end - at < kDirectoryEntryBytes || file.u32(at) != kDirectoryEntry) {
    file.fail("has no zip entry here", at);
  }
  if ((file.u16(at + 8) & kEncrypted) != 0) file.fail("is encrypted", at);
  if (file.u16(at + 10) != 0) file.fail("is compressed; torch.save stores", at);
  const std::int64_t name = file.u16(at + 28);
  const std::int64_t extra = file.u16(at + 30);
  next = at + kDirectoryEntryBytes + name + extra + file.u16(at + 32);
  if (next > end || name == 0 || name > limits.name_bytes) {
    file.fail("has an entry with a name or fields that do not fit", at);
  }
  std::int64_t packed = file.u32(at + 20);
  std::int64_t size = file.u32(at + 24);
  std::int64_t header = file.u32(at + 42);
  if (file.u16(at + 34) != 0) file.fail("is one of several parts of a zip", at);
  read_zip64(file, at + kDirectoryEntryBytes + name, extra, size, packed, header);
  if (packed != size) file.fail("has an entry of two sizes", at);
  return {{file.text(at + kDirectoryEntryBytes, name), 0, size, file.u32(at + 16)}, header};
}

// Sets the offset of the entry's bytes. Checks that the local header agrees with the directory.
void place(const Bytes& file, Listed& listed, std::int64_t before, std::int64_t directory) {
  const std::int64_t at = listed.header;
  ZipEntry& entry = listed.entry;
  if (at < before || at > directory - kLocalHeaderBytes || file.u32(at) != kLocalHeader) {
    file.fail("has no entry " + entry.name + " of its own where its directory says",
              std::clamp<std::int64_t>(at, 0, file.size()));
  }
  const auto name = static_cast<std::int64_t>(entry.name.size());
  if (file.u16(at + 8) != 0 || (file.u16(at + 6) & kEncrypted) != 0 || file.u16(at + 26) != name ||
      file.text(at + kLocalHeaderBytes, name) != entry.name) {
    file.fail("has another entry than " + entry.name + " here", at);
  }
  entry.offset = at + kLocalHeaderBytes + name + file.u16(at + 28);
  if (entry.offset > directory || entry.bytes > directory - entry.offset) {
    file.fail("has an entry " + entry.name + " that reaches beyond the file", at);
  }
}

// For eight bytes at a time: kTables[k][b] is the remainder of byte b followed by k zero bytes.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8U ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes.data(), 8);
    eight ^= crc;
    crc = 0;
    for (unsigned k = 0; k < 8; ++k) crc ^= kTables[7 - k][eight >> (8 * k) & 0xFFU];
  }
  for (const std::byte b : bytes) {
    crc = crc >> 8U ^ kTables[0][(crc ^ static_cast<std::uint32_t>(b)) & 0xFFU];
  }
  return ~crc;
}

std::vector<ZipEntry> parse_zip(std::span<const std::byte> bytes, const std::string& path,
                                const ZipLimits& limits) {
  const Bytes file(bytes, path);
  const Directory directory = find_directory(file);
  if (directory.entries > limits.entries) {
    file.fail(format_text("lists {} entries", directory.entries), directory.offset);
  }
  std::vector<Listed> listed;
  std::set<std::string> names;
  std::int64_t at = directory.offset;
  const std::int64_t end = directory.offset + directory.bytes;
  for (std::int64_t i = 0; i < directory.entries; ++i) {
    std::int64_t next = 0;
    listed.push_back(read_listed(file, at, end, limits, next));
    const std::string& name = listed.back().entry.name;
    if (!names.insert(name).second) file.fail("lists " + name + " twice", at);
    at = next;
  }
  if (at != end) file.fail("lists more than it counts", at);
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.header < b.header; });
  std::vector<ZipEntry> entries;
  std::int64_t before = 0;
  for (Listed& one : listed) {
    place(file, one, before, directory.offset);
    before = one.entry.offset + one.entry.bytes;
    entries.push_back(std::move(one.entry));
  }
  return entries;
}

}  // namespace sluice
