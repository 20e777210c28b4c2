#include "runtime/checkpoint/hf/hf_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "base/posix/map.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/widen.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kTile = 256;

// Reads elements [begin, begin + out.size()) of the transpose, [rows, cols], of the stored matrix.
void widen_transposed(const std::byte* stored, DType dtype, std::int64_t rows, std::int64_t cols,
                      std::int64_t begin, std::span<float> out) {
  const auto n = static_cast<std::int64_t>(out.size());
  const std::int64_t last_row = (begin + n + cols - 1) / cols;
  std::array<float, kTile> tile;
  for (std::int64_t row = begin / cols; row < last_row; row += kTile) {
    const std::int64_t wide = std::min(kTile, last_row - row);
    for (std::int64_t col = 0; col < cols; ++col) {
      widen(stored, dtype, col * rows + row, {tile.data(), static_cast<std::size_t>(wide)});
      for (std::int64_t r = 0; r < wide; ++r) {
        const std::int64_t at = (row + r) * cols + col - begin;
        if (at >= 0 && at < n) {
          nth(out, at) = nth(tile, r);
        }
      }
    }
  }
}

}  // namespace

HfWeights::HfWeights(const std::string& dir, const ModelOptions& file, const ModelSpec& spec)
    : placements_(hf_placements(spec)),
      table_(hf_table_name(spec.options.type)),
      tied_(spec.options.tie_embeddings) {
  const HfFiles files = find_hf_files(dir);
  collect(files, spec.options.type);
  match(dir, file, spec);
}

void HfWeights::collect(const HfFiles& files, ModelType type) {
  files_.reserve(files.paths.size());  // Stored::file points into files_
  for (const std::string& path : files.paths) {
    const SafetensorsFile& file = files_.emplace_back(path);
    for (const TensorEntry& entry : file.tensors()) {
      if (!files.index.empty()) {
        const auto mapped = files.weight_map.find(entry.name);
        if (mapped == files.weight_map.end() || mapped->second != path) {
          throw CheckpointError("is not where " + files.index + " says", path, entry.name,
                                entry.offset);
        }
      }
      const std::string name = hf_canonical_name(type, entry.name);
      if (hf_is_buffer(type, name)) continue;
      const auto dtype = compute_dtype(entry.dtype);
      if (!dtype) {
        throw CheckpointError("is stored as " + std::string(name_of(entry.dtype)) +
                                  "; weights are read from F32, BF16 and F16",
                              path, entry.name, entry.offset);
      }
      const auto [other, is_new] = stored_.emplace(name, Stored{&file, entry, *dtype});
      if (!is_new) {
        throw CheckpointError("occurs a second time in " + other->second.file->path() +
                                  ", tensor " + other->second.entry.name,
                              path, entry.name, entry.offset);
      }
    }
  }
  for (const auto& [tensor, path] : files.weight_map) {
    const auto file = std::find_if(files_.begin(), files_.end(),
                                   [&](const SafetensorsFile& f) { return f.path() == path; });
    if (file->find(tensor) == nullptr) {
      throw CheckpointError("is not in " + path, files.index, tensor);
    }
  }
}

void HfWeights::match(const std::string& dir, const ModelOptions& file, const ModelSpec& spec) {
  std::vector<std::string> missing;
  std::set<std::string> wanted;
  if (tied_) wanted.insert(kHfHead);
  for (const HfPlacement& placement : placements_) {
    wanted.insert(placement.tensor);
    const auto found = stored_.find(placement.tensor);
    if (found == stored_.end()) {
      missing.push_back(placement.tensor);
      continue;
    }
    check_rows(placement, found->second, file);
    // Rows beyond vocab_size are padding, not weights.
    const bool vocabulary = placement.rows == HfRows::kVocabulary;
    const std::int64_t rows = vocabulary ? file.vocab : found->second.entry.shape.front();
    sources_.emplace(placement.param, Source{placement, found->second, rows});
  }
  if (!missing.empty()) {
    const bool only_head = missing.size() == 1 && missing.front() == kHfHead;
    throw CheckpointError(
        "is in no file" +
            (missing.size() > 1 ? format_text(" (nor are {} others)", missing.size() - 1)
                                : std::string()) +
            (only_head ? "; a model whose head is its embedding has tie_word_embeddings: true"
                       : ""),
        dir, missing.front());
  }
  for (const auto& [name, stored] : stored_) {
    if (wanted.contains(name)) continue;
    throw CheckpointError(format_text("is no tensor of a {} of {} layers",
                                      hf_type_name(spec.options.type), spec.options.layers),
                          stored.file->path(), stored.entry.name, stored.entry.offset);
  }
  dtype_ = sources_.begin()->second.stored.dtype;
}

// Checks that the shapes agree. The number of rows may differ as the placement permits.
void HfWeights::check_rows(const HfPlacement& placement, const Stored& stored,
                           const ModelOptions& file) {
  std::vector<std::int64_t> expected = placement.stored_shape();
  const std::vector<std::int64_t>& shape = stored.entry.shape;
  const bool vocabulary = placement.rows == HfRows::kVocabulary;
  if (vocabulary) expected[0] = file.vocab;
  if (placement.rows == HfRows::kPositions) expected[0] = file.seq;
  bool fits = shape.size() == expected.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = vocabulary && d == 0 ? shape[d] >= expected[d] : shape[d] == expected[d];
  }
  if (!fits) {
    throw CheckpointError(
        "has the shape " + shape_text(shape) + ", and config.json makes it " + shape_text(expected),
        stored.file->path(), stored.entry.name, stored.entry.offset);
  }
  if (placement.transposed) return;
  const std::int64_t ours = placement.shape[0];
  const std::int64_t theirs = expected[0];  // without padding rows
  if (ours > theirs) {
    notes_.push_back(format_text("{}: {} rows beyond the file's {} are drawn as fresh weights are",
                                 placement.tensor, ours - theirs, theirs));
  } else if (shape[0] > ours) {
    notes_.push_back(format_text("{}: {} rows beyond the model's {} are not taken",
                                 placement.tensor, shape[0] - ours, ours));
  }
}

std::int64_t HfWeights::read(const std::string& param, std::int64_t begin,
                             std::span<float> out) const {
  const auto found = sources_.find(param);
  check(found != sources_.end(), "a parameter of the model is read: " + param);
  const Source& source = found->second;
  const std::vector<std::int64_t>& shape = source.placement.shape;
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  check(begin >= 0 && end <= element_count(shape), "a range lies in its parameter: " + param);
  const std::span<const std::byte> bytes = source.stored.file->bytes(source.stored.entry);
  if (source.placement.transposed) {
    widen_transposed(bytes.data(), source.stored.dtype, shape[0], shape[1], begin, out);
    let_go(bytes);
    return end - begin;
  }
  const std::vector<std::int64_t>& stored = source.stored.entry.shape;
  const std::int64_t stored_end =
      std::min(end, element_count(stored) / stored.front() * source.rows);
  if (stored_end <= begin) return 0;
  const auto elems = static_cast<std::size_t>(stored_end - begin);
  widen(bytes.data(), source.stored.dtype, begin, out.first(elems));
  const auto size = static_cast<std::size_t>(size_of(source.stored.dtype));
  let_go(bytes.subspan(static_cast<std::size_t>(begin) * size, elems * size));
  return stored_end - begin;
}

void HfWeights::check_tied() const {
  const auto head = stored_.find(kHfHead);
  if (!tied_ || head == stored_.end()) return;
  const Stored& a = head->second;
  const Stored& b = stored_.at(table_);
  const auto x = a.file->bytes(a.entry);
  const auto y = b.file->bytes(b.entry);
  const bool equal = a.dtype == b.dtype && a.entry.shape == b.entry.shape &&
                     std::memcmp(x.data(), y.data(), x.size()) == 0;
  let_go(x);
  let_go(y);
  if (equal) return;
  throw CheckpointError("differs from " + b.entry.name +
                            ", which tie_word_embeddings: true in config.json makes its equal; a "
                            "model with a head of its own has false there",
                        a.file->path(), a.entry.name, a.entry.offset);
}

}  // namespace sluice
