#include "runtime/checkpoint/format/manifest.hpp"

#include "base/format.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t file_hash(const FileRecord& file) {
  std::vector<std::uint64_t> hashes{file.header_hash};
  for (const RangeRecord& range : file.ranges) {
    hashes.insert(hashes.end(), range.blocks.begin(), range.blocks.end());
  }
  return xxh3(std::as_bytes(std::span(hashes)));
}

std::string hex64(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::int64_t Manifest::bytes() const {
  std::int64_t total = 0;
  for (const FileRecord& file : files) total += file.bytes;
  for (const TokenizerFile& file : run.tokenizer.files) total += file.bytes;
  return total;
}

namespace {

using Parts = std::map<std::pair<std::string_view, StateKind>, std::vector<const StateRange*>>;

void check_one(const Parts& parts, const Parts::value_type& entry) {
  const auto& [key, ranges] = entry;
  const StateRange& first = *ranges.front();
  const auto master = parts.find({key.first, StateKind::kMaster});
  if (master == parts.end()) {
    throw Error("parameter " + first.param + " has a " + std::string(name_of(first.kind)) +
                " but no master");
  }
  for (const StateRange* const range : ranges) {
    if (range->shape != master->second.front()->shape || range->dtype != first.dtype) {
      throw Error(std::string(name_of(range->kind)) + " of parameter " + describe(*range) +
                  ": another shape or dtype than elsewhere in the checkpoint");
    }
  }
  check_covers(ranges);
}

}  // namespace

void check_manifest(const Manifest& manifest, const std::string& path) {
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    if (manifest.files[i].rank == static_cast<int>(i)) continue;
    throw CheckpointError(
        format_text(
            "the manifest does not list one file for each rank: file number {} is that of rank {}",
            i, manifest.files[i].rank),
        path);
  }
  Parts parts;
  for (const FileRecord& file : manifest.files) {
    for (const RangeRecord& record : file.ranges) {
      parts[{record.range.param, record.range.kind}].push_back(&record.range);
    }
  }
  try {
    for (const auto& entry : parts) check_one(parts, entry);
  } catch (const Error& error) {
    throw CheckpointError(error.what(), path);
  }
}

}  // namespace sluice
