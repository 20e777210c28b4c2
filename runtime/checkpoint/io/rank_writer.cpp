#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"
#include "runtime/checkpoint/io/staged_file.hpp"

namespace sluice {
namespace {

SafetensorsLayout layout_of(std::span<const StateRange> ranges, const TextMap& metadata) {
  std::vector<TensorDecl> decls;
  decls.reserve(ranges.size());
  for (const StateRange& range : ranges) {
    check_range(range);
    TensorDecl decl{tensor_name(range), range.dtype, range.box.length};
    if (range.elems() != element_count(range.box.length)) decl.shape = {range.elems()};
    decls.push_back(std::move(decl));
  }
  return plan_safetensors(decls, metadata);
}

TextMap metadata_of(const SaveTarget& target, int rank) {
  return {{"format", "sluice-checkpoint"},
          {"step", std::to_string(target.step)},
          {"rank", std::to_string(rank)},
          {"save_id", target.save_id}};
}

// Computes the block checksums of one range while its bytes arrive.
class BlockHasher {
 public:
  void add(std::span<const std::byte> bytes, std::int64_t block_bytes) {
    while (!bytes.empty()) {
      const auto take = static_cast<std::size_t>(
          std::min(static_cast<std::int64_t>(bytes.size()), block_bytes - filled_));
      if (filled_ == 0 && static_cast<std::int64_t>(take) == block_bytes) {
        blocks_.push_back(XXH3_64bits(bytes.data(), take));
      } else {
        add_part(bytes.first(take));
        if (filled_ == block_bytes) close();
      }
      bytes = bytes.subspan(take);
    }
  }
  // Called after the last byte of the range.
  void finish() {
    if (filled_ > 0) close();
  }
  [[nodiscard]] const std::vector<std::uint64_t>& blocks() const { return blocks_; }

 private:
  void add_part(std::span<const std::byte> bytes) {
    if (!state_) state_.reset(XXH3_createState());
    if (filled_ == 0) XXH3_64bits_reset(state_.get());
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
    filled_ += static_cast<std::int64_t>(bytes.size());
  }
  void close() {
    blocks_.push_back(XXH3_64bits_digest(state_.get()));
    filled_ = 0;
    state_.reset();
  }

  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, FreeState> state_;  // set only while a block is unfinished
  std::int64_t filled_ = 0;
  std::vector<std::uint64_t> blocks_;
};

struct Progress {
  std::int64_t written = 0;
  BlockHasher hasher;
};

}  // namespace

struct RankWriter::Impl {
  Impl(FileSystem& file_system, const SaveTarget& save, int writer,
       std::span<const StateRange> wanted, const RankWriterOptions& options)
      : files(file_system),
        target(save),
        rank(writer),
        block_bytes(options.block_bytes),
        ranges(wanted.begin(), wanted.end()),
        layout(layout_of(wanted, metadata_of(save, writer))),
        progress(wanted.size()),
        path(join_path(save.path(), rank_file_name(writer))),
        out(std::make_unique<StagedFile>(files, path, options.staging_bytes,
                                         options.writeback_bytes)) {}

  FileSystem& files;
  SaveTarget target;
  int rank;
  std::int64_t block_bytes;
  std::vector<StateRange> ranges;
  SafetensorsLayout layout;
  std::vector<Progress> progress;  // by range; used by the thread that writes the range
  std::string path;
  std::unique_ptr<StagedFile> out;
  std::atomic<std::int64_t> written{0};
};

RankWriter::RankWriter(FileSystem& files, const SaveTarget& target, int rank,
                       std::span<const StateRange> ranges, const RankWriterOptions& options) {
  check(options.block_bytes >= 8 && options.block_bytes % 8 == 0, "blocks of whole elements");
  impl_ = std::make_unique<Impl>(files, target, rank, ranges, options);
  impl_->out->write(0, std::as_bytes(std::span(impl_->layout.header)));
}

RankWriter::~RankWriter() = default;
RankWriter::RankWriter(RankWriter&& other) noexcept = default;
RankWriter& RankWriter::operator=(RankWriter&& other) noexcept = default;

std::int64_t RankWriter::written_bytes() const { return impl_->written.load(); }

void RankWriter::write(std::size_t range, std::span<const std::byte> bytes) {
  check(range < impl_->ranges.size() && impl_->out != nullptr, "a range of an open file");
  const TensorEntry& entry = impl_->layout.tensors[range];
  Progress& progress = impl_->progress[range];
  const auto length = static_cast<std::int64_t>(bytes.size());
  if (length > entry.bytes - progress.written) {
    throw Error(format_text("{}: tensor {} is given more than its {} bytes", impl_->path,
                            entry.name, entry.bytes));
  }
  // Pieces stay in the cache between the checksum and the copy.
  constexpr std::size_t kPiece = 256 * 1024;
  while (!bytes.empty()) {
    const std::size_t take = std::min(bytes.size(), kPiece);
    progress.hasher.add(bytes.first(take), impl_->block_bytes);
    impl_->out->write(entry.offset + progress.written, bytes.first(take));
    progress.written += static_cast<std::int64_t>(take);
    bytes = bytes.subspan(take);
  }
  if (progress.written == entry.bytes) progress.hasher.finish();
  impl_->written += length;
}

std::string RankWriter::seal() {
  Impl& self = *impl_;
  check(self.out != nullptr, "a file that is not sealed");
  for (std::size_t i = 0; i < self.ranges.size(); ++i) {
    const TensorEntry& entry = self.layout.tensors[i];
    if (self.progress[i].written == entry.bytes) continue;
    throw Error(format_text("{}: tensor {} has {} of its {} bytes: the save left something out",
                            self.path, entry.name, self.progress[i].written, entry.bytes));
  }
  self.out->sync();
  self.out.reset();
  self.files.sync_dir(self.target.path());
  FileRecord record;
  record.name = rank_file_name(self.rank);
  record.rank = self.rank;
  record.bytes = self.layout.file_bytes;
  record.header_bytes = static_cast<std::int64_t>(self.layout.header.size());
  record.header_hash = xxh3(std::as_bytes(std::span(self.layout.header)));
  std::vector<std::size_t> order(self.ranges.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return self.layout.tensors[a].offset < self.layout.tensors[b].offset;
  });
  for (const std::size_t i : order) {
    record.ranges.push_back(
        {self.ranges[i], self.layout.tensors[i].offset, self.progress[i].hasher.blocks()});
  }
  record.hash = file_hash(record);
  return encode_file_record(record, self.target.save_id, self.block_bytes);
}

}  // namespace sluice
