#include "runtime/checkpoint/checkpoint_load.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/checkpoint/block_reader.hpp"

namespace sluice {
namespace {

struct Stored {
  std::size_t file = 0, range = 0;
};

using Places = std::unordered_map<std::string, std::vector<Stored>>;

std::string key_of(std::string_view param, StateKind kind) {
  return std::string(name_of(kind)) + '/' + std::string(param);
}

bool convertible(TensorDType from, TensorDType to) {
  return from == to || (compute_dtype(from) && compute_dtype(to));
}

// n elements from one dtype to another.
void copy_elements(std::byte* to, TensorDType to_dtype, const std::byte* from,
                   TensorDType from_dtype, std::int64_t n) {
  if (to_dtype == from_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(n * size_of(to_dtype)));
    return;
  }
  convert(to, *compute_dtype(to_dtype), from, *compute_dtype(from_dtype), n);
}

}  // namespace

struct Checkpoint::Impl {
  Impl(FileSystem& files, std::string dir, Manifest from)
      : path(std::move(dir)), manifest(std::move(from)), reader(files, path, manifest) {
    std::map<std::string_view, const StateRange*> masters;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
      const std::vector<RangeRecord>& ranges = manifest.files[file].ranges;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const StateRange& range = ranges[i].range;
        places[key_of(range.param, range.kind)].push_back({file, i});
        if (range.kind == StateKind::kMaster) masters.emplace(range.param, &range);
      }
    }
    for (const auto& [name, range] : masters) {
      parameters.push_back(whole_range(range->param, range->kind, range->dtype, range->shape));
    }
  }

  [[nodiscard]] const StateRange& stored(const ReadPiece& piece) const {
    return manifest.files[piece.file].ranges[piece.range].range;
  }
  [[nodiscard]] const std::vector<Stored>& find(const StateRange& wanted) const;
  void plan_one(std::size_t index, const StateRange& wanted, std::vector<ReadPiece>& pieces) const;
  void read_run(const ReadPiece& piece, std::int64_t from, std::int64_t elems, TensorDType dtype,
                std::byte* to);

  [[noreturn]] void fail(const StateRange& wanted, const std::string& what) const {
    throw CheckpointError(
        std::string(name_of(wanted.kind)) + " of parameter " + describe(wanted) + ": " + what,
        path);
  }

  std::string path;
  Manifest manifest;
  Places places;
  std::vector<StateRange> parameters;
  BlockReader reader;
};

const std::vector<Stored>& Checkpoint::Impl::find(const StateRange& wanted) const {
  const auto at = places.find(key_of(wanted.param, wanted.kind));
  if (at == places.end()) fail(wanted, "the checkpoint does not hold it");
  const Stored& first = at->second.front();
  const StateRange& stored = manifest.files[first.file].ranges[first.range].range;
  if (stored.shape != wanted.shape) {
    const StateRange whole = whole_range(stored.param, stored.kind, stored.dtype, stored.shape);
    std::string shape;
    for (const std::int64_t dim : stored.shape) {
      shape += (shape.empty() ? "" : " x ") + std::to_string(dim);
    }
    fail(wanted, "the checkpoint holds it with shape " + shape + " (" +
                     std::to_string(whole.elems()) + " elements): another model?");
  }
  if (!convertible(stored.dtype, wanted.dtype)) {
    fail(wanted, "it is stored as " + std::string(name_of(stored.dtype)) +
                     ", which does not become " + std::string(name_of(wanted.dtype)));
  }
  return at->second;
}

void Checkpoint::Impl::plan_one(std::size_t index, const StateRange& wanted,
                                std::vector<ReadPiece>& pieces) const {
  try {
    check_range(wanted);
  } catch (const Error& error) {
    throw CheckpointError(error.what(), path);
  }
  std::int64_t found = 0;
  for (const Stored& place : find(wanted)) {
    const StateRange& stored = manifest.files[place.file].ranges[place.range].range;
    for (SharedRuns& runs : shared_runs(stored, wanted)) {
      found += runs.elems();
      pieces.push_back({index, place.file, place.range, std::move(runs)});
    }
  }
  if (found != wanted.elems()) {
    fail(wanted, "the files hold " + std::to_string(found) + " of its " +
                     std::to_string(wanted.elems()) + " elements");
  }
}

void Checkpoint::Impl::read_run(const ReadPiece& piece, std::int64_t from, std::int64_t elems,
                                TensorDType dtype, std::byte* to) {
  const TensorDType stored_dtype = stored(piece).dtype;
  const std::int64_t stored_size = size_of(stored_dtype);
  std::int64_t at = from * stored_size;
  const std::int64_t end = at + elems * stored_size;
  while (at < end) {
    const std::int64_t block = at / manifest.block_bytes;
    const std::int64_t begin = block * manifest.block_bytes;
    const std::int64_t length = reader.block_length(piece.file, piece.range, block);
    const std::int64_t take = std::min(end, begin + length) - at;
    if (take == length && stored_dtype == dtype) {
      reader.block_to(piece.file, piece.range, block, {to, static_cast<std::size_t>(take)});
    } else {
      const auto bytes = reader.block(piece.file, piece.range, block);
      copy_elements(to, dtype, bytes.data() + (at - begin), stored_dtype, take / stored_size);
    }
    to += take / stored_size * size_of(dtype);
    at += take;
  }
}

Checkpoint::Checkpoint(FileSystem& files, std::string path, Manifest manifest)
    : impl_(std::make_unique<Impl>(files, std::move(path), std::move(manifest))) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&& other) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept = default;

const std::string& Checkpoint::path() const { return impl_->path; }
const Manifest& Checkpoint::manifest() const { return impl_->manifest; }
const std::vector<StateRange>& Checkpoint::parameters() const { return impl_->parameters; }

bool Checkpoint::has(const std::string& param, StateKind kind) const {
  return impl_->places.contains(key_of(param, kind));
}

std::vector<ReadPiece> Checkpoint::plan_reads(std::span<const StateRange> wanted) const {
  std::vector<ReadPiece> pieces;
  for (std::size_t i = 0; i < wanted.size(); ++i) impl_->plan_one(i, wanted[i], pieces);
  // Ranges of a file are in order of offset.
  std::stable_sort(pieces.begin(), pieces.end(), [](const ReadPiece& a, const ReadPiece& b) {
    return std::tie(a.file, a.range, a.runs.from) < std::tie(b.file, b.range, b.runs.from);
  });
  return pieces;
}

std::int64_t Checkpoint::bytes_to_read(std::span<const ReadPiece> pieces) const {
  std::int64_t total = 0;
  const ReadPiece* before = nullptr;
  std::int64_t next_block = 0;  // of the range that `before` reads
  for (const ReadPiece& piece : pieces) {
    if (before == nullptr || before->file != piece.file || before->range != piece.range) {
      next_block = 0;
    }
    before = &piece;
    const std::int64_t size = size_of(impl_->stored(piece).dtype);
    for_each_run(piece.runs, [&](std::int64_t from, std::int64_t, std::int64_t elems) {
      const std::int64_t last = ((from + elems) * size - 1) / impl_->manifest.block_bytes;
      next_block = std::max(next_block, from * size / impl_->manifest.block_bytes);
      for (; next_block <= last; ++next_block) {
        total += impl_->reader.block_length(piece.file, piece.range, next_block);
      }
    });
  }
  return total;
}

void Checkpoint::read(std::span<const ReadPiece> pieces, std::span<const StateRange> wanted,
                      std::span<const std::span<std::byte>> destinations) {
  check(destinations.size() == wanted.size(), "a destination for each range");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    check(static_cast<std::int64_t>(destinations[i].size()) == wanted[i].bytes(),
          "destinations as long as their ranges");
  }
  for (const ReadPiece& piece : pieces) {
    const TensorDType dtype = wanted[piece.wanted].dtype;
    std::byte* const base = destinations[piece.wanted].data();
    for_each_run(piece.runs, [&](std::int64_t from, std::int64_t to, std::int64_t elems) {
      impl_->read_run(piece, from, elems, dtype, base + to * size_of(dtype));
    });
  }
}

void Checkpoint::read_range(const StateRange& wanted, std::span<std::byte> destination) {
  const std::vector<ReadPiece> pieces = plan_reads({&wanted, 1});
  read(pieces, {&wanted, 1}, {&destination, 1});
}

}  // namespace sluice
