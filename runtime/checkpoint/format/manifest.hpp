// What a complete checkpoint consists of: docs/formats/checkpoint.md. Values and their JSON; no
// files are touched here.
#pragma once

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
inline constexpr std::int64_t kMaxManifestBytes = 1 << 30;  // of 10^12 parameters: some 200 MB

// The layout that saved. For people and for messages: reading does not depend on it.
struct WorldLayout {
  int world = 1, data = 1, tensor = 1, pipeline = 1, virtual_stages = 1;
  int zero_stage = 0;
  bool operator==(const WorldLayout&) const = default;
};

// A file of the tokenizer, beside those of the ranks.
struct TokenizerFile {
  std::string name;  // "tokenizer.json"
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;                     // XXH3-64
  std::shared_ptr<const std::string> text{};  // what commit() writes; null: not read
  bool operator==(const TokenizerFile& other) const {
    return name == other.name && bytes == other.bytes && hash == other.hash;
  }
};

// The tokenizer that made the model's tokens. The directory of a checkpoint is a folder that
// make_tokenizer() takes, where it has files.
struct TokenizerRecord {
  std::string fingerprint{};  // Tokenizer::fingerprint(); empty: unknown, or there was none
  std::int64_t vocab = 0;
  std::vector<std::int32_t> end_tokens{};  // that end a text, besides the tokenizer's own
  std::vector<TokenizerFile> files{};      // none: the tokenizer that is built in
  bool operator==(const TokenizerRecord&) const = default;
  [[nodiscard]] bool known() const { return !fingerprint.empty(); }
};

// What a run needs besides tensors. Every number comes back bit for bit (they must be finite).
struct RunState {
  std::int64_t step = 0;     // optimizer steps done, skipped ones too
  std::int64_t updates = 0;  // those that changed the weights: Adam's and the schedule's count
  std::uint64_t seed = 0;
  std::int64_t samples = 0;  // data position: samples consumed since step 0, all ranks together
  std::int64_t tokens = 0;
  double learning_rate = 0;  // of the last update; the next follows from updates and the schedule
  double loss_scale = 1;
  std::int64_t loss_scale_good_steps = 0;
  std::int64_t loss_scale_lives = 0;
  std::int64_t skipped_steps = 0;
  std::string config;  // resolved configuration, as in config.yaml
  WorldLayout layout;
  TokenizerRecord tokenizer{};
  TextMap more;  // anything else; unknown keys are kept
  bool operator==(const RunState&) const = default;
};

// One range as it lies in a file.
struct RangeRecord {
  StateRange range;
  std::int64_t offset = 0;            // in the file
  std::vector<std::uint64_t> blocks;  // XXH3-64 of every block_bytes from the range's begin
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
  std::int64_t generation = 0;  // rises by one with every save into a directory: order of saving
  std::string save_id;          // of this save, in every file of it
  std::string saved_at;         // UTC, "2026-11-21T20:41:07Z"
  std::int64_t block_bytes = kChecksumBlockBytes;
  RunState run;
  std::vector<FileRecord> files;  // by rank

  [[nodiscard]] std::int64_t bytes() const;  // of all files, the tokenizer's too
};

[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes);
[[nodiscard]] std::uint64_t file_hash(const FileRecord& file);
[[nodiscard]] std::string hex64(std::uint64_t value);  // 16 digits

// JSON with its own checksum at the end. `path` is for messages. parse_manifest throws
// CheckpointError: not JSON, wrong checksum, a newer version, a field missing or of another type, a
// range outside its file, ranges that overlap. It does not look for holes: check_manifest does.
[[nodiscard]] std::string encode_manifest(const Manifest& manifest);
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& path);

// What orders checkpoints, from the first kManifestHeadBytes of a manifest alone.
struct ManifestHead {
  std::int64_t step = 0, generation = 0;
};
inline constexpr std::int64_t kManifestHeadBytes = 4096;
[[nodiscard]] ManifestHead parse_manifest_head(std::string_view begin, const std::string& path);

// "rank-00003.safetensors"
[[nodiscard]] std::string rank_file_name(int rank);

// A rank's share of the manifest, for the exchange between ranks.
[[nodiscard]] std::string encode_file_record(const FileRecord& file, const std::string& save_id,
                                             std::int64_t block_bytes);
// Throws CheckpointError where the record is of another save or does not hold together.
[[nodiscard]] FileRecord parse_file_record(std::string_view text, const std::string& save_id,
                                           std::int64_t& block_bytes, const std::string& path);

// Ranks 0..n-1 are each there once, and each parameter is covered exactly, for each kind that any
// rank wrote of it; it has a master; all its ranges agree on shape and, per kind, dtype. Throws
// CheckpointError naming parameter, kind and range.
void check_manifest(const Manifest& manifest, const std::string& path);

}  // namespace sluice
