#include "runtime/checkpoint/io/checkpoint_load.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/checkpoint/format/block_reader.hpp"
#include "runtime/checkpoint/io/read_ahead.hpp"

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

// Copies n elements and converts their dtype.
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
  [[nodiscard]] std::vector<BlockVisit> visits_of(std::span<const ReadPiece> pieces) const;
  void scatter(std::span<const ReadPiece> pieces, TensorDType dtype, ReadAhead& blocks,
               std::byte* to) const;
  // Calls f(block, first byte in the block, bytes) for the blocks of `elems` elements from `from`
  // on.
  template <class F>
  void for_each_block(const ReadPiece& piece, std::int64_t from, std::int64_t elems, F&& f) const {
    const std::int64_t size = size_of(stored(piece).dtype);
    std::int64_t at = from * size;
    const std::int64_t end = at + elems * size;
    while (at < end) {
      const std::int64_t block = at / manifest.block_bytes;
      const std::int64_t begin = at - block * manifest.block_bytes;
      const std::int64_t take = std::min(end - at, manifest.block_bytes - begin);
      f(block, begin, take);
      at += take;
    }
  }

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
      shape += format_text("{}{}", shape.empty() ? "" : " x ", dim);
    }
    fail(wanted, format_text("the checkpoint holds it with shape {} ({} elements): another model?",
                             shape, whole.elems()));
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
    fail(wanted, format_text("the files hold {} of its {} elements", found, wanted.elems()));
  }
}

void Checkpoint::Impl::read_run(const ReadPiece& piece, std::int64_t from, std::int64_t elems,
                                TensorDType dtype, std::byte* to) {
  const TensorDType stored_dtype = stored(piece).dtype;
  for_each_block(
      piece, from, elems, [&](std::int64_t block, std::int64_t begin, std::int64_t take) {
        const std::int64_t length = reader.block_length(piece.file, piece.range, block);
        const std::int64_t n = take / size_of(stored_dtype);
        if (take == length && stored_dtype == dtype) {
          reader.block_to(piece.file, piece.range, block, {to, static_cast<std::size_t>(take)});
        } else {
          const auto bytes = reader.block(piece.file, piece.range, block);
          copy_elements(to, dtype, bytes.data() + begin, stored_dtype, n);
        }
        to += n * size_of(dtype);
      });
}

std::vector<BlockVisit> Checkpoint::Impl::visits_of(std::span<const ReadPiece> pieces) const {
  std::vector<BlockVisit> visits;
  for (const ReadPiece& piece : pieces) {
    for_each_run(piece.runs, [&](std::int64_t from, std::int64_t, std::int64_t elems) {
      for_each_block(piece, from, elems, [&](std::int64_t block, std::int64_t, std::int64_t take) {
        add_visit(visits, {piece.file, piece.range, block, take});
      });
    });
  }
  return visits;
}

void Checkpoint::Impl::scatter(std::span<const ReadPiece> pieces, TensorDType dtype,
                               ReadAhead& blocks, std::byte* to) const {
  for (const ReadPiece& piece : pieces) {
    const TensorDType stored_dtype = stored(piece).dtype;
    for_each_run(piece.runs, [&](std::int64_t from, std::int64_t first, std::int64_t elems) {
      std::byte* at = to + first * size_of(dtype);
      for_each_block(piece, from, elems,
                     [&](std::int64_t block, std::int64_t begin, std::int64_t take) {
                       const auto bytes = blocks.block(piece.file, piece.range, block);
                       const std::int64_t n = take / size_of(stored_dtype);
                       copy_elements(at, dtype, bytes.data() + begin, stored_dtype, n);
                       at += n * size_of(dtype);
                     });
    });
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
  // The ranges of a file are ordered by offset, so this order is sequential.
  std::stable_sort(pieces.begin(), pieces.end(), [](const ReadPiece& a, const ReadPiece& b) {
    return std::tie(a.file, a.range, a.runs.from) < std::tie(b.file, b.range, b.runs.from);
  });
  return pieces;
}

std::int64_t Checkpoint::bytes_to_read(std::span<const ReadPiece> pieces) const {
  std::int64_t total = 0;
  const ReadPiece* before = nullptr;
  std::int64_t next_block = 0;  // first block of the range that is not counted yet
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

namespace {

// Calls f(index of the wanted range, the part as a range, its first element) for each part in
// order.
template <class F>
void for_each_part(std::span<const StateRange> wanted, std::size_t part_bytes, F&& f) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t elems = static_cast<std::int64_t>(part_bytes) / size_of(wanted[i].dtype);
    check(elems > 0, "room for an element");
    StateRange part = wanted[i];
    for (std::int64_t begin = wanted[i].begin; begin < wanted[i].end; begin += elems) {
      part.begin = begin;
      part.end = std::min(begin + elems, wanted[i].end);
      f(i, part, begin - wanted[i].begin);
    }
  }
}

}  // namespace

void Checkpoint::read_in_parts(std::span<const StateRange> wanted, std::span<std::byte> part,
                               std::span<std::byte> ahead,
                               const std::function<void(const StatePart&)>& take) {
  // Computes the pieces twice, first only for their blocks. Keeping them would need about 500 bytes
  // per part.
  std::vector<BlockVisit> visits;
  for_each_part(wanted, part.size(), [&](std::size_t, const StateRange& range, std::int64_t) {
    for (const BlockVisit& visit : impl_->visits_of(plan_reads({&range, 1}))) {
      add_visit(visits, visit);
    }
  });
  ReadAhead blocks(impl_->reader, std::move(visits), ahead);
  for_each_part(
      wanted, part.size(), [&](std::size_t i, const StateRange& range, std::int64_t first) {
        impl_->scatter(plan_reads({&range, 1}), range.dtype, blocks, part.data());
        const std::span<std::byte> bytes = part.first(static_cast<std::size_t>(range.bytes()));
        take({i, first, range.elems(), bytes});
      });
}

void Checkpoint::read_range(const StateRange& wanted, std::span<std::byte> destination) {
  const std::vector<ReadPiece> pieces = plan_reads({&wanted, 1});
  read(pieces, {&wanted, 1}, {&destination, 1});
}

}  // namespace sluice
