// The manifest of a complete checkpoint: values and their JSON. Touches no file. Format:
// docs/formats/checkpoint.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/format/range_plan.hpp"

namespace sluice {

inline constexpr int kCheckpointVersion = 1;
inline constexpr std::int64_t kChecksumBlockBytes = 1 << 20;
inline constexpr std::int64_t kMaxManifestBytes = 1 << 30;  // 10^12 parameters need about 200 MB

// The layout of the run that saved. For people and messages only: reading does not depend on it.
struct WorldLayout {
  int world = 1, data = 1, tensor = 1, pipeline = 1, virtual_stages = 1;
  int zero_stage = 0;
  bool operator==(const WorldLayout&) const = default;
};

// A file of the tokenizer, in the same directory as the files of the ranks.
struct TokenizerFile {
  std::string name;  // "tokenizer.json"
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;                     // XXH3-64
  std::shared_ptr<const std::string> text{};  // contents for commit(); null: not read
  bool operator==(const TokenizerFile& other) const {
    return name == other.name && bytes == other.bytes && hash == other.hash;
  }
};

// The tokenizer that made the model's tokens, and the chat template of a run on conversations. If
// the tokenizer is not the built-in one, make_tokenizer() accepts the directory of the checkpoint.
struct TokenizerRecord {
  std::string fingerprint{};  // Tokenizer::fingerprint(); empty: unknown, or no tokenizer
  std::int64_t vocab = 0;
  std::vector<std::int32_t> end_tokens{};  // end a text, besides the tokenizer's own end token
  std::vector<TokenizerFile> files{};      // the built-in tokenizer has none but a chat template
  bool operator==(const TokenizerRecord&) const = default;
  [[nodiscard]] bool known() const { return !fingerprint.empty(); }
  [[nodiscard]] bool has_file(std::string_view name) const {
    return std::any_of(files.begin(), files.end(),
                       [name](const TokenizerFile& file) { return file.name == name; });
  }
};

// The state of a run besides its tensors. Every number is restored bit for bit and must be finite.
struct RunState {
  std::int64_t step = 0;     // completed optimizer steps, including skipped steps
  std::int64_t updates = 0;  // steps that changed the weights: count of Adam and of the schedule
  std::uint64_t seed = 0;
  std::int64_t samples = 0;  // data position: samples since step 0, of all ranks together
  std::int64_t tokens = 0;
  double learning_rate = 0;  // of the last update; the schedule computes the next from `updates`
  double loss_scale = 1;
  std::int64_t loss_scale_good_steps = 0;
  std::int64_t loss_scale_lives = 0;
  std::int64_t skipped_steps = 0;
  std::string config;  // resolved configuration: the text of config.yaml
  WorldLayout layout;
  TokenizerRecord tokenizer{};
  TextMap more;  // further entries; unknown keys are kept
  bool operator==(const RunState&) const = default;
};

// One range in a file.
struct RangeRecord {
  StateRange range;
  std::int64_t offset = 0;            // in the file
  std::vector<std::uint64_t> blocks;  // XXH3-64 of each block of block_bytes of the range
};

struct FileRecord {
  std::string name;  // "rank-00003.safetensors"
  int rank = 0;
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;
  std::uint64_t header_hash = 0;
  std::uint64_t hash = 0;  // XXH3-64 over header_hash and all blocks, in order of offset
  std::vector<RangeRecord> ranges;
};

struct Manifest {
  int version = kCheckpointVersion;
  std::int64_t step = 0;
  std::int64_t generation = 0;  // rises by one with every save to a directory: the order of saves
  std::string save_id;          // unique to this save; every file of the save contains it
  std::string saved_at;         // UTC, "2026-11-21T20:41:07Z"
  std::int64_t block_bytes = kChecksumBlockBytes;
  RunState run;
  std::vector<FileRecord> files;  // by rank

  [[nodiscard]] std::int64_t bytes() const;  // of all files, including the tokenizer's
};

[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes);
[[nodiscard]] std::uint64_t file_hash(const FileRecord& file);
[[nodiscard]] std::string hex64(std::uint64_t value);  // 16 digits

// The JSON ends with a checksum of itself. `path` is for messages. parse_manifest throws
// CheckpointError for invalid JSON, a wrong checksum, a newer version, a missing field, a field of
// another type, a range outside its file, and ranges that overlap. check_manifest looks for holes.
[[nodiscard]] std::string encode_manifest(const Manifest& manifest);
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& path);

// The order of a checkpoint, from the first kManifestHeadBytes of its manifest alone.
struct ManifestHead {
  std::int64_t step = 0, generation = 0;
};
inline constexpr std::int64_t kManifestHeadBytes = 4096;
[[nodiscard]] ManifestHead parse_manifest_head(std::string_view begin, const std::string& path);

// "rank-00003.safetensors"
[[nodiscard]] std::string rank_file_name(int rank);

// One rank's part of the manifest, for the exchange between ranks.
[[nodiscard]] std::string encode_file_record(const FileRecord& file, const std::string& save_id,
                                             std::int64_t block_bytes);
// Throws CheckpointError if the record belongs to another save or contradicts itself.
[[nodiscard]] FileRecord parse_file_record(std::string_view text, const std::string& save_id,
                                           std::int64_t& block_bytes, const std::string& path);

// Checks that each rank 0..n-1 occurs once. Checks for every parameter: master weights exist, the
// ranges of each kind cover the parameter exactly once, all ranges agree on the shape, and all
// ranges of a kind on the dtype. Throws CheckpointError, which names parameter, kind and range.
void check_manifest(const Manifest& manifest, const std::string& path);

}  // namespace sluice
