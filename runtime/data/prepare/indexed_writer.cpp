#include "runtime/data/prepare/indexed_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/io_error.hpp"
#include "base/posix/map.hpp"
#include "runtime/data/file_io.hpp"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kIndexVersion = 1;

std::uint8_t code_of(TokenType type) {
  switch (type) {
    case TokenType::kUInt8:
      return 1;
    case TokenType::kInt8:
      return 2;
    case TokenType::kInt16:
      return 3;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 5;
    case TokenType::kUInt16:
      return 8;
    case TokenType::kUInt32:
      break;
  }
  throw Error("Megatron's files have no 32-bit tokens without a sign");
}

std::string bin_part_of(const std::string& prefix) { return prefix + ".bin.part"; }
std::string lengths_part_of(const std::string& prefix) { return prefix + ".lengths.part"; }

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error("rename to", to, errno);
}

// Calls `visit` with each document's sequence lengths.
template <class Visit>
void for_each_document(const MappedFile& part, const Visit& visit) {
  const auto* const values = reinterpret_cast<const std::int32_t*>(part.bytes().data());
  const std::size_t count = part.bytes().size() / sizeof(std::int32_t);
  for (std::size_t i = 0; i < count;) {
    const auto sequences = static_cast<std::size_t>(values[i]);
    check(sequences <= count - i - 1, part.path() + " is damaged");
    visit(std::span(values + i + 1, sequences));
    i += 1 + sequences;
  }
}

template <class T>
void put(AtomicFile& file, const T& value) {
  file.append(std::as_bytes(std::span(&value, 1)));
}

void write_index(const std::string& prefix, TokenType type) {
  const MappedFile part(lengths_part_of(prefix));
  std::uint64_t sequences = 0, documents = 0;
  for_each_document(part, [&](std::span<const std::int32_t> lengths) {
    sequences += lengths.size();
    ++documents;
  });
  AtomicFile file(prefix + ".idx");
  file.append(kIndexMagic);
  put(file, kIndexVersion);
  put(file, code_of(type));
  put(file, sequences);
  put(file, documents + 1);
  for_each_document(
      part, [&](std::span<const std::int32_t> lengths) { file.append(std::as_bytes(lengths)); });
  std::int64_t offset = 0;
  for_each_document(part, [&](std::span<const std::int32_t> lengths) {
    for (const std::int32_t length : lengths) {
      put(file, offset);
      offset += length * size_of(type);
    }
  });
  std::int64_t first = 0;
  put(file, first);
  for_each_document(part, [&](std::span<const std::int32_t> lengths) {
    first += std::ssize(lengths);
    put(file, first);
  });
  file.commit();
}

}  // namespace

TokenType token_type_of(std::int64_t vocab) {
  return vocab < 65500 ? TokenType::kUInt16 : TokenType::kInt32;
}

void store_tokens(TokenType type, std::span<const std::int32_t> ids, std::vector<std::byte>& out) {
  if (type == TokenType::kInt32) {
    const auto bytes = std::as_bytes(ids);
    out.insert(out.end(), bytes.begin(), bytes.end());
    return;
  }
  check(type == TokenType::kUInt16, "tokens are stored as uint16 or int32");
  const std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
  const auto bytes = std::as_bytes(std::span(narrow));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void IndexedWriter::Part::append(std::span<const std::byte> bytes) {
  buffer.insert(buffer.end(), bytes.begin(), bytes.end());
  if (buffer.size() >= kBufferBytes) flush();
}

void IndexedWriter::Part::flush() {
  if (const int error = write_fully(file.get(), buffer)) {
    throw_io_error("write", path, error, write_remedy(error));
  }
  buffer.clear();
}

void IndexedWriter::Part::sync() {
  flush();
  if (::fdatasync(file.get()) != 0) throw_io_error("write", path, errno, write_remedy(errno));
}

IndexedWriter::Part IndexedWriter::open_part(const std::string& path, std::int64_t bytes) {
  Part part{path, open_descriptor(path, O_RDWR | O_CREAT)};
  if (!part.file) throw_io_error("create", path, errno, write_remedy(errno));
  struct stat status {};
  if (::fstat(part.file.get(), &status) != 0) throw_io_error("read", path, errno);
  if (status.st_size < bytes) {
    throw IoError(path + " has " + std::to_string(status.st_size) + " bytes, but " +
                      std::to_string(bytes) +
                      " were written before the interruption; remove it and the other parts, and "
                      "begin again",
                  path);
  }
  if (::ftruncate(part.file.get(), bytes) != 0 || ::lseek(part.file.get(), bytes, SEEK_SET) < 0) {
    throw_io_error("write", path, errno, write_remedy(errno));
  }
  return part;
}

IndexedWriter::IndexedWriter(const std::string& prefix, TokenType type, const WriterPosition& from)
    : prefix_(prefix),
      type_(type),
      at_(from),
      bin_(open_part(bin_part_of(prefix), from.bin_bytes)),
      lengths_(open_part(lengths_part_of(prefix), from.lengths_bytes)) {}

void IndexedWriter::append(std::span<const std::byte> tokens) {
  bin_.append(tokens);
  const auto bytes = static_cast<std::int64_t>(tokens.size());
  at_.bin_bytes += bytes;
  at_.open_tokens += bytes / size_of(type_);
  at_.tokens += bytes / size_of(type_);
}

void IndexedWriter::end_document() {
  if (at_.open_tokens > std::numeric_limits<std::int32_t>::max()) {
    throw IoError("document " + std::to_string(at_.documents) + " has " +
                      std::to_string(at_.open_tokens) +
                      " tokens, more than the 2^31 - 1 of an .idx file; cut it",
                  prefix_);
  }
  const auto length = static_cast<std::int32_t>(at_.open_tokens);
  end_document(std::span(&length, length > 0 ? 1U : 0U));
}

void IndexedWriter::end_document(std::span<const std::int32_t> lengths) {
  const auto sequences = static_cast<std::int32_t>(lengths.size());
  lengths_.append(std::as_bytes(std::span(&sequences, 1)));
  lengths_.append(std::as_bytes(lengths));
  at_.lengths_bytes += 4 * (1 + std::ssize(lengths));
  ++at_.documents;
  at_.open_tokens = 0;
}

WriterPosition IndexedWriter::sync() {
  bin_.sync();
  lengths_.sync();
  return at_;
}

void IndexedWriter::finish() {
  sync();
  complete(prefix_, type_);
}

void check_new_pair(const std::string& command, const std::string& prefix) {
  for (const char* const ending : {".bin", ".idx"}) {
    if (!path_exists(prefix + ending)) continue;
    throw ConfigError("data " + command + ": " + prefix + ending +
                      " exists; remove it, or give another prefix");
  }
}

void IndexedWriter::complete(const std::string& prefix, TokenType type) {
  const std::string lengths = lengths_part_of(prefix), bin = bin_part_of(prefix);
  if (!path_exists(lengths)) return;
  if (path_exists(bin)) rename_file(bin, prefix + ".bin");
  write_index(prefix, type);
  if (::unlink(lengths.c_str()) != 0) throw_io_error("remove", lengths, errno);
}

}  // namespace sluice
