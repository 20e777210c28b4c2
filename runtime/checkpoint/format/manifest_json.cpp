#include "runtime/checkpoint/format/manifest_json.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/format/run_state_json.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

Json parse_json(std::string_view text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw CheckpointError("is not JSON", path, "", static_cast<std::int64_t>(error.byte));
  } catch (const Json::exception&) {  // a number beyond the range of double
    throw CheckpointError("is not JSON with numbers in range", path);
  }
}

StateKind kind_from(const JsonFields& fields) {
  const std::string text = fields.text("kind");
  for (const StateKind kind : kStateKinds) {
    if (name_of(kind) == text) return kind;
  }
  fields.fail("kind", "is " + text + ", which this version does not know");
}

Box box_from(const JsonFields& fields, std::span<const std::int64_t> shape) {
  if (fields.find("box") == nullptr) return whole_box(shape);
  Box box;
  for (const Json& pair : fields.list("box")) {
    const std::vector<std::int64_t> numbers = fields.integers_of(pair, "box");
    if (numbers.size() != 2) fields.fail("box", "holds something else than [offset, length]");
    box.offset.push_back(numbers[0]);
    box.length.push_back(numbers[1]);
  }
  return box;
}

RangeRecord range_from(const Json& json, const std::string& path, const std::string& where) {
  const JsonFields fields(json, path, where);
  RangeRecord record;
  StateRange& range = record.range;
  range.param = fields.text("param");
  range.kind = kind_from(fields);
  const auto dtype = parse_tensor_dtype(fields.text("dtype"));
  if (!dtype) fields.fail("dtype", "is not known");
  range.dtype = *dtype;
  range.shape = fields.integers("shape");
  range.box = box_from(fields, range.shape);
  const std::vector<std::int64_t> elems = fields.integers("elems");
  if (elems.size() != 2) fields.fail("elems", "is no [begin, end)");
  range.begin = elems[0];
  range.end = elems[1];
  record.offset = fields.integer("offset");
  record.blocks = fields.hashes("blocks");
  try {
    check_range(range);
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    throw CheckpointError(error.what(), path);
  }
  return record;
}

// Checks that the ranges follow each other from the header to the end of the file without a gap, as
// safetensors requires.
void check_places(const FileRecord& file, std::int64_t block_bytes, const JsonFields& fields) {
  std::int64_t end = file.header_bytes;
  for (const RangeRecord& record : file.ranges) {
    const std::int64_t bytes = record.range.bytes();
    if (record.offset != end || bytes > file.bytes - end) {
      fields.fail("ranges", "do not follow each other within the file: " + describe(record.range));
    }
    const std::int64_t blocks = bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
    if (static_cast<std::int64_t>(record.blocks.size()) != blocks) {
      fields.fail("ranges",
                  "have another number of checksums than blocks: " + describe(record.range));
    }
    end += bytes;
  }
  if (end != file.bytes) fields.fail("bytes", "is not where its ranges end");
}

FileRecord file_from(const Json& json, const std::string& path, const std::string& where,
                     std::int64_t block_bytes) {
  const JsonFields fields(json, path, where);
  FileRecord file;
  file.name = fields.text("name");
  file.rank = fields.small_integer("rank");
  if (file.name != rank_file_name(file.rank)) fields.fail("name", "is not that of its rank");
  file.bytes = fields.integer("bytes");
  file.header_bytes = fields.integer("header_bytes", 8);
  if (file.header_bytes > kMaxSafetensorsHeaderBytes + 8) {  // readers load the whole header
    fields.fail("header_bytes", "is over the 100 MB that a safetensors header may have");
  }
  file.header_hash = fields.hash("header_xxh3");
  file.hash = fields.hash("xxh3");
  const Json& ranges = fields.list("ranges");
  file.ranges.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    file.ranges.push_back(range_from(ranges[i], path, format_text("{}ranges[{}].", where, i)));
  }
  check_places(file, block_bytes, fields);
  if (file.hash != file_hash(file)) fields.fail("xxh3", "is not that of its blocks");
  return file;
}

std::int64_t block_bytes_from(const JsonFields& fields) {
  const std::int64_t bytes = fields.integer("block_bytes", 8);
  if (bytes % 8 != 0 || bytes > 1 << 30)
    fields.fail("block_bytes", "is no multiple of 8 up to 1 GiB");
  return bytes;
}

// Runs before all other checks, because a newer format may differ from the second line on.
void refuse_newer(std::string_view text, const std::string& path) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const Json json = Json::parse(std::string(line) + "}", nullptr, false);  // on error: discarded
  if (!json.is_object() || !json.contains("format") || json["format"] != kManifestFormat) return;
  if (!json.contains("version") || !json["version"].is_number_unsigned()) return;
  if (json["version"].get<std::uint64_t>() <= kCheckpointVersion) return;
  throw NewerFormatError(format_text("was written in format {} by a newer Sluice; this one reads "
                                     "up to {}: read it with that one",
                                     json["version"].dump(), kCheckpointVersion),
                         path);
}

// Compares the checksum at the end with the text before it.
void check_tail(std::string_view text, const std::string& path) {
  if (text.size() < kManifestTailBytes) throw CheckpointError("is cut short", path);
  const std::string_view body = text.substr(0, text.size() - kManifestTailBytes);
  const std::string_view tail = text.substr(body.size());
  if (!tail.starts_with(kManifestTailBegin) || !tail.ends_with(kManifestTailEnd)) {
    throw CheckpointError("does not end with its checksum: it is cut short or damaged", path, "",
                          static_cast<std::int64_t>(body.size()));
  }
  if (tail.substr(kManifestTailBegin.size(), 16) != hex64(xxh3(std::as_bytes(std::span(body))))) {
    throw CheckpointError("its checksum is wrong: the file is damaged", path, "", 0);
  }
}

}  // namespace

ManifestHead parse_manifest_head(std::string_view begin, const std::string& path) {
  const std::size_t end = begin.substr(0, kManifestHeadBytes).find('\n');
  if (end == std::string_view::npos) throw CheckpointError("its first line is not whole", path);
  const std::string_view line = begin.substr(0, end);
  refuse_newer(line, path);
  const std::size_t at = line.rfind(kManifestHeadHash);
  if (at == std::string_view::npos ||
      line.substr(at + kManifestHeadHash.size()) !=
          hex64(xxh3(std::as_bytes(std::span(line.substr(0, at))))) + '"') {
    throw CheckpointError("the checksum of its first line is wrong: it is damaged", path, "", 0);
  }
  const Json json = parse_json(std::string(line) + "}", path);
  const JsonFields fields(json, path, "");
  if (fields.text("format") != kManifestFormat) fields.fail("format", "is not sluice-checkpoint");
  return {fields.integer("step"), fields.integer("generation")};
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  refuse_newer(text, path);
  check_tail(text, path);
  const Json json = parse_json(text, path);
  const JsonFields fields(json, path, "");
  Manifest manifest;
  if (fields.text("format") != kManifestFormat) fields.fail("format", "is not sluice-checkpoint");
  manifest.version = fields.small_integer("version");
  manifest.step = fields.integer("step");
  manifest.generation = fields.integer("generation");
  manifest.save_id = fields.text("save_id");
  manifest.saved_at = fields.text("saved_at");
  manifest.block_bytes = block_bytes_from(fields);
  manifest.run = run_state_from_json(fields.at("run"), path);
  const Json& files = fields.list("files");
  for (std::size_t i = 0; i < files.size(); ++i) {
    manifest.files.push_back(
        file_from(files[i], path, format_text("files[{}].", i), manifest.block_bytes));
  }
  return manifest;
}

FileRecord parse_file_record(std::string_view text, const std::string& save_id,
                             std::int64_t& block_bytes, const std::string& path) {
  const Json json = parse_json(text, path);
  const JsonFields fields(json, path, "");
  if (fields.text("save_id") != save_id) {
    throw CheckpointError(
        "a rank's record is of another save: " + fields.text("save_id") + " instead of " + save_id,
        path);
  }
  block_bytes = block_bytes_from(fields);
  return file_from(fields.at("file"), path, "file.", block_bytes);
}

}  // namespace sluice
