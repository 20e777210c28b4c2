#include "runtime/checkpoint/format/block_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {
namespace {

// The rank, step or save that a header names, if the header is not the recorded one.
std::string origin_of(std::span<const std::byte> header, std::int64_t file_bytes,
                      const FileRecord& file, const Manifest& manifest) {
  try {
    const SafetensorsHeader parsed = parse_safetensors_header(header, file_bytes, file.name);
    const auto said = [&](const char* key, const std::string& expected) -> std::string {
      const auto at = parsed.metadata.find(key);
      if (at == parsed.metadata.end() || at->second == expected) return "";
      return std::string(": it is a file of ") + key + ' ' + at->second + ", not " + expected;
    };
    std::string origin = said("step", std::to_string(manifest.step));
    if (origin.empty()) origin = said("rank", std::to_string(file.rank));
    if (origin.empty()) origin = said("save_id", manifest.save_id);
    return origin.empty() ? ": it is damaged" : origin;
  } catch (const CheckpointError&) {
    return ": it is damaged";
  }
}

// A missing file says nothing about its contents: a host that does not see the shared folder finds
// no file at all.
std::unique_ptr<File> open_existing(FileSystem& files, const std::string& path) {
  try {
    return files.open(path);
  } catch (const IoError& error) {
    if (error.error_number() != ENOENT) throw;
    throw IoError(path +
                      " is missing: the checkpoint has to be on a file system that all hosts "
                      "share, and complete (`sluice checkpoint ls` of the folder above tells)",
                  path, ENOENT);
  }
}

}  // namespace

BlockReader::BlockReader(FileSystem& files, std::string dir, const Manifest& manifest)
    : files_(files),
      dir_(std::move(dir)),
      manifest_(manifest),
      open_(manifest.files.size()),
      known_(manifest.files.size()) {}

std::string BlockReader::path(std::size_t file) const {
  return join_path(dir_, manifest_.files[file].name);
}

std::shared_ptr<File> BlockReader::open(std::size_t file) {
  const std::lock_guard lock(mutex_);
  if (open_[file]) return open_[file];
  const FileRecord& record = manifest_.files[file];
  std::shared_ptr<File> opened = open_existing(files_, path(file));
  const std::int64_t bytes = opened->size();
  if (!known_[file]) {
    std::vector<std::byte> header(static_cast<std::size_t>(record.header_bytes));
    header.resize(static_cast<std::size_t>(opened->read(0, header)));
    if (xxh3(header) != record.header_hash) {
      throw CheckpointError("the header is not the one that was written" +
                                origin_of(header, bytes, record, manifest_),
                            path(file), "", 0);
    }
  }
  if (bytes != record.bytes) {
    throw CheckpointError(format_text("the file has {} bytes instead of {}", bytes, record.bytes),
                          path(file), "", std::min(bytes, record.bytes));
  }
  known_[file] = true;
  if (opened_.size() == kMostOpen) {
    open_[opened_.front()].reset();
    opened_.pop_front();
  }
  opened_.push_back(file);
  open_[file] = opened;
  return opened;
}

std::int64_t BlockReader::block_length(std::size_t file, std::size_t range,
                                       std::int64_t block) const {
  const std::int64_t bytes = manifest_.files[file].ranges[range].range.bytes();
  return std::min(manifest_.block_bytes, bytes - block * manifest_.block_bytes);
}

std::span<const std::byte> BlockReader::block(std::size_t file, std::size_t range,
                                              std::int64_t block) {
  if (held_block_ != block || held_range_ != range || held_file_ != file) {
    held_block_ = -1;
    held_bytes_ = block_length(file, range, block);
    if (static_cast<std::int64_t>(buffer_.size()) < held_bytes_) {
      buffer_.resize(static_cast<std::size_t>(held_bytes_));
    }
    block_to(file, range, block, std::span(buffer_).first(static_cast<std::size_t>(held_bytes_)));
    held_file_ = file;
    held_range_ = range;
    held_block_ = block;
  }
  return std::span(buffer_).first(static_cast<std::size_t>(held_bytes_));
}

void BlockReader::block_to(std::size_t file, std::size_t range, std::int64_t block,
                           std::span<std::byte> destination) {
  const std::shared_ptr<File> opened = open(file);
  const std::int64_t offset =
      manifest_.files[file].ranges[range].offset + block * manifest_.block_bytes;
  std::int64_t got = 0;
  try {
    got = opened->read(offset, destination);
  } catch (const IoError&) {
    rethrow(std::current_exception(), file, range, offset);
  }
  compare(file, range, block, destination.first(static_cast<std::size_t>(got)));
}

void BlockReader::compare(std::size_t file, std::size_t range, std::int64_t block,
                          std::span<const std::byte> got) const {
  const RangeRecord& record = manifest_.files[file].ranges[range];
  const std::int64_t offset = record.offset + block * manifest_.block_bytes;
  const auto bytes = static_cast<std::int64_t>(got.size());
  if (bytes != block_length(file, range, block)) {
    throw CheckpointError("the file was cut short", path(file), tensor_name(record.range),
                          offset + bytes);
  }
  if (xxh3(got) != nth(record.blocks, block)) {
    throw CheckpointError(
        format_text("the {} bytes from here are not what was written: their checksum is wrong{}",
                    bytes, kOlderMayBeWhole),
        path(file), tensor_name(record.range), offset);
  }
}

void BlockReader::rethrow(const std::exception_ptr& error, std::size_t file, std::size_t range,
                          std::int64_t offset) const {
  try {
    std::rethrow_exception(error);
  } catch (const CheckpointError&) {
    throw;  // names file and offset already
  } catch (const IoError& failed) {
    throw IoError(
        format_text("tensor {}, byte {}: {}",
                    tensor_name(manifest_.files[file].ranges[range].range), offset, failed.what()),
        failed.path(), failed.error_number());
  }
}

}  // namespace sluice
