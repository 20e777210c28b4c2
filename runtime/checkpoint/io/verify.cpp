#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/format/block_reader.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"
#include "runtime/checkpoint/io/read_ahead.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"

namespace sluice {
namespace {

Defect defect_of(const IoError& error) {
  if (const auto* const known = dynamic_cast<const CheckpointError*>(&error)) {
    return {known->file(), known->tensor(), known->offset(), known->what()};
  }
  return {error.path(), "", -1, error.what()};
}

std::vector<BlockVisit> blocks_of(const Manifest& manifest, std::size_t file) {
  std::vector<BlockVisit> visits;
  const std::vector<RangeRecord>& ranges = manifest.files[file].ranges;
  for (std::size_t range = 0; range < ranges.size(); ++range) {
    for (std::size_t block = 0; block < ranges[range].blocks.size(); ++block) {
      visits.push_back({file, range, static_cast<std::int64_t>(block), manifest.block_bytes});
    }
  }
  return visits;
}

// Compares every block. Continues after a wrong block, until the file has kMaxDefects defects.
void verify_file(BlockReader& reader, std::size_t file, std::span<std::byte> ahead,
                 std::vector<Defect>& defects) {
  const std::size_t before = defects.size();
  const auto attempt = [&](auto&& f) {
    try {
      f();
      return true;
    } catch (const IoError& error) {
      defects.push_back(defect_of(error));
      return defects.size() - before < kMaxDefects;
    }
  };
  bool opened = false;
  attempt([&] {
    (void)reader.open(file);
    opened = true;
  });
  if (!opened) return;
  const std::vector<BlockVisit> visits = blocks_of(reader.manifest(), file);
  ReadAhead blocks(reader, visits, ahead);
  for (const BlockVisit& visit : visits) {
    if (!attempt([&] { (void)blocks.block(file, visit.range, visit.block); })) return;
  }
}

void verify_tokenizer(FileSystem& files, const std::string& path, const TokenizerRecord& tokenizer,
                      VerifyReport& report) {
  for (const TokenizerFile& file : tokenizer.files) {
    try {
      (void)read_tokenizer_file(files, path, file);
    } catch (const IoError& error) {
      report.defects.push_back(defect_of(error));
    }
    ++report.files;
    report.bytes += file.bytes;
  }
}

void verify_name(FileSystem& files, const std::string& path, const Manifest& manifest,
                 VerifyReport& report) {
  try {
    check_folder_name(files, path, manifest);
  } catch (const IoError& error) {
    report.defects.push_back(defect_of(error));
  }
}

}  // namespace

VerifyReport verify(FileSystem& files, const std::string& path, int part, int parts) {
  check(part >= 0 && part < parts, "a part of the files");
  VerifyReport report;
  const std::string manifest_path = join_path(path, kManifestName);
  try {
    const Manifest manifest =
        parse_manifest(read_text(files, manifest_path, kMaxManifestBytes), manifest_path);
    check_manifest(manifest, manifest_path);
    if (part == 0) verify_name(files, path, manifest, report);
    if (part == 0) verify_tokenizer(files, path, manifest.run.tokenizer, report);
    BlockReader reader(files, path, manifest);
    const PageMemory ahead(read_ahead_bytes(std::min(manifest.block_bytes, kChecksumBlockBytes)));
    for (auto file = static_cast<std::size_t>(part); file < manifest.files.size();
         file += static_cast<std::size_t>(parts)) {
      verify_file(reader, file, ahead.all(), report.defects);
      ++report.files;
      report.bytes += manifest.files[file].bytes;
    }
  } catch (const IoError& error) {
    if (part == 0) report.defects.push_back(defect_of(error));
  }
  return report;
}

}  // namespace sluice
