// Writes manifests and the records of single files as text. manifest_json.cpp reads them.
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/format/manifest_json.hpp"
#include "runtime/checkpoint/format/run_state_json.hpp"

namespace sluice {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Replaces invalid UTF-8 (a path in the configuration) instead of failing.
std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson range_to_json(const RangeRecord& record) {
  const StateRange& range = record.range;
  OrderedJson json{{"param", range.param},
                   {"kind", name_of(range.kind)},
                   {"dtype", name_of(range.dtype)},
                   {"shape", range.shape}};
  if (range.box != whole_box(range.shape)) {
    OrderedJson box = OrderedJson::array();
    for (std::size_t d = 0; d < range.shape.size(); ++d) {
      box.push_back({range.box.offset[d], range.box.length[d]});
    }
    json["box"] = std::move(box);
  }
  json["elems"] = {range.begin, range.end};
  json["offset"] = record.offset;
  std::string blocks;
  for (const std::uint64_t block : record.blocks) blocks += hex64(block);
  json["blocks"] = std::move(blocks);
  return json;
}

OrderedJson file_to_json(const FileRecord& file) {
  OrderedJson json{{"name", file.name},
                   {"rank", file.rank},
                   {"bytes", file.bytes},
                   {"header_bytes", file.header_bytes},
                   {"header_xxh3", hex64(file.header_hash)},
                   {"xxh3", hex64(file.hash)}};
  OrderedJson ranges = OrderedJson::array();
  for (const RangeRecord& record : file.ranges) ranges.push_back(range_to_json(record));
  json["ranges"] = std::move(ranges);
  return json;
}

}  // namespace

std::string rank_file_name(int rank) {
  std::array<char, 48> name{};
  std::snprintf(name.data(), name.size(), "rank-%05d.safetensors", rank);
  return name.data();
}

std::string encode_manifest(const Manifest& manifest) {
  const OrderedJson head{{"format", kManifestFormat},
                         {"version", manifest.version},
                         {"step", manifest.step},
                         {"generation", manifest.generation},
                         {"save_id", manifest.save_id},
                         {"saved_at", manifest.saved_at},
                         {"block_bytes", manifest.block_bytes}};
  std::string text = dump(head);
  text.pop_back();  // removes "}": more fields follow
  const std::string head_hash = hex64(xxh3(std::as_bytes(std::span(text))));
  text.append(kManifestHeadHash).append(head_hash).append("\"\n");
  text += ",\"run\":" + dump(run_state_to_json(manifest.run)) + "\n,\"files\":[\n";
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    if (i > 0) text += ",\n";
    text += dump(file_to_json(manifest.files[i]));
  }
  text += "]\n";
  const std::string hash = hex64(xxh3(std::as_bytes(std::span(text))));
  return text.append(kManifestTailBegin).append(hash).append(kManifestTailEnd);
}

std::string encode_file_record(const FileRecord& file, const std::string& save_id,
                               std::int64_t block_bytes) {
  return dump({{"save_id", save_id}, {"block_bytes", block_bytes}, {"file", file_to_json(file)}});
}

}  // namespace sluice
