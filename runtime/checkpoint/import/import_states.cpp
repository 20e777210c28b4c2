#include "runtime/checkpoint/import/import_states.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/import/import_files.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPieceElems = std::int64_t{1} << 20;
constexpr std::int64_t kTile = 256;

std::string list_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kShown) text += format_text(" and {} more", names.size() - kShown);
  return text;
}

// Canonical name -> name in the files, for one part.
std::map<std::string, std::string> names_of(ImportSource& source, ModelType type, int part) {
  std::map<std::string, std::string> names;
  for (const std::string& in_file : source.tensors(part)) {
    const std::string name = canonical_import_name(type, source.names(), in_file);
    if (name.empty()) continue;
    const auto [other, is_new] = names.emplace(name, in_file);
    if (is_new) continue;
    throw CheckpointError("holds " + other->second + " and " + in_file + ", which are one weight",
                          source.path(), in_file);
  }
  return names;
}

std::int64_t rows_of(const OpenTensor& tensor, std::int64_t cols) {
  const std::vector<std::int64_t>& shape = tensor.shape();
  if (shape.size() == 2) return shape[0];
  return shape.size() == 1 && cols > 0 ? shape[0] / cols : 0;
}

// Compares two matrices bit by bit. Either may be stored with one dimension.
bool same_elements(const OpenTensor& a, const OpenTensor& b) {
  const bool a_flat = a.shape().size() == 1;
  const std::vector<std::int64_t>& shape = a_flat ? b.shape() : a.shape();
  if (shape.empty() || shape.size() > 2) return false;
  const std::int64_t cols = shape.back();
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  if (element_count(a.shape()) != element_count(b.shape())) return false;
  const auto read = [cols](const OpenTensor& from, std::int64_t row, std::span<float> out) {
    from.shape().size() == 1 ? from.read_row(0, row * cols, out) : from.read_row(row, 0, out);
  };
  for (const OpenTensor* tensor : {&a, &b}) {
    tensor->check_dtype();
    tensor->check_storage();
  }
  std::vector<float> of_a(static_cast<std::size_t>(cols));
  std::vector<float> of_b(of_a.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    read(a, row, of_a);
    read(b, row, of_b);
    if (std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) != 0) return false;
  }
  a.let_go();
  b.let_go();
  return true;
}

}  // namespace

ImportTables import_tables(ImportSource& source, ModelType type, std::int64_t hidden) {
  const std::map<std::string, std::string> names = names_of(source, type, 0);
  ImportTables tables;
  const std::string table = import_table_name(type, source.names());
  const auto found = names.find(table);
  if (found == names.end()) {
    throw CheckpointError("holds no " + table + "; it holds " + list_text(source.tensors(0)),
                          source.path(), table);
  }
  const OpenTensor tensor = source.open(0, found->second, StateKind::kMaster);
  tables.vocab = rows_of(tensor, hidden) * source.parts();
  tables.unpadded = tensor.unpadded || source.names() == ImportNames::kHuggingFace;
  if (tables.vocab == 0) {
    throw tensor.error("has the shape " + shape_text(tensor.shape()) + "; a table is expected");
  }
  const std::string positions = import_positions_name(source.names());
  if (const auto at = names.find(positions); at != names.end() && type == ModelType::kGpt2) {
    tables.positions = rows_of(source.open(0, at->second, StateKind::kMaster), hidden);
  }
  return tables;
}

ImportedStates::ImportedStates(ImportSource& source, const ModelSpec& spec,
                               const ImportTables& tables)
    : source_(source),
      layout_(plan_import(spec, source.names(), source.parts(), tables.vocab / source.parts())) {
  find_names(spec.options.type, spec.options.tie_embeddings);
  check_shapes();
  const std::int64_t ours = spec.options.vocab;
  if (ours < tables.vocab) {
    notes_.push_back(
        format_text("{} rows of the vocabulary beyond the model's {} are padding and are not taken",
                    tables.vocab - ours, ours));
  } else if (ours > tables.vocab) {
    notes_.push_back(format_text(
        "{} rows of the vocabulary are not in the checkpoint and are drawn", ours - tables.vocab));
  }
}

void ImportedStates::find_names(ModelType type, bool tied) {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::set<std::pair<int, std::string>> wanted;
  for (const ImportTensor& tensor : layout_.tensors) wanted.insert({tensor.part, tensor.name});
  for (int part = 0; part < source_.parts(); ++part) {
    const std::string on = source_.parts() > 1 ? format_text(" (rank {})", part) : "";
    const std::map<std::string, std::string> names = names_of(source_, type, part);
    for (const ImportTensor& tensor : layout_.tensors) {
      if (tensor.part != part) continue;
      const auto found = names.find(tensor.name);
      if (found == names.end()) {
        missing.push_back(tensor.name + on);
      } else {
        in_file_.emplace(std::pair{part, tensor.name}, found->second);
      }
    }
    for (const auto& [name, in_file] : names) {
      if (wanted.contains({part, name})) continue;
      const auto table = names.find(import_table_name(type, source_.names()));
      const bool head = tied && name == import_head_name(source_.names());
      const bool copy = head && table != names.end() && is_copy(part, in_file, table->second);
      if (!copy) unexpected.push_back(in_file + on + (head ? " (no copy of the table)" : ""));
    }
  }
  if (missing.empty() && unexpected.empty()) return;
  std::string what;
  if (!missing.empty()) what += "lacks " + list_text(missing);
  if (!unexpected.empty()) {
    what += (what.empty() ? "" : "; ") + std::string("holds ") + list_text(unexpected) +
            ", which the model does not have";
  }
  throw CheckpointError(what + ": another model, or other names, than model: says", source_.path());
}

bool ImportedStates::is_copy(int part, const std::string& head, const std::string& table) const {
  for (const StateKind kind : kStateKinds) {
    if (!source_.has(part, head, kind)) continue;
    if (!source_.has(part, table, kind)) return false;
    if (!same_elements(source_.open(part, head, kind), source_.open(part, table, kind))) {
      return false;
    }
  }
  return true;
}

void ImportedStates::check_shapes() {
  std::vector<std::string> without;  // tensors without a moment
  std::size_t moments = 0;
  for (const ImportTensor& wanted : layout_.tensors) {
    const std::string& in_file = in_file_.at({wanted.part, wanted.name});
    for (const StateKind kind : kStateKinds) {
      if (!source_.has(wanted.part, in_file, kind)) {
        without.push_back(in_file + " (" + std::string(name_of(kind)) + ")");
        continue;
      }
      if (kind != StateKind::kMaster) ++moments;
      check_rows(wanted, source_.open(wanted.part, in_file, kind));
    }
  }
  moments_ = without.empty();
  if (moments_ || moments == 0) return;
  throw CheckpointError("lacks moments of some parameters and has those of others: " +
                            list_text(without) + kWeightsAlone,
                        source_.path());
}

void ImportedStates::check_rows(const ImportTensor& wanted, const OpenTensor& found) {
  found.check_dtype();
  const std::vector<std::int64_t>& shape = found.shape();
  std::vector<std::int64_t> expected = wanted.shape;
  if (wanted.table == ImportRows::kPositions) {
    expected[0] = std::max(expected[0], rows_of(found, expected[1]));
  }
  const bool flat = shape.size() == 1 && element_count(shape) == element_count(expected);
  if (flat || shape == expected) return;
  throw found.error("has the shape " + shape_text(shape) + ", and the model makes it " +
                    shape_text(wanted.shape));
}

ImportedStates::Opened& ImportedStates::open(int part, const std::string& tensor, StateKind kind) {
  if (open_kind_ != kind) open_.clear();
  open_kind_ = kind;
  const auto found = open_.find({part, tensor});
  if (found != open_.end()) return found->second;
  Opened opened{source_.open(part, in_file_.at({part, tensor}), kind), 0, false};
  opened.tensor.check_storage();
  const auto wanted =
      std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                   [&](const ImportTensor& t) { return t.part == part && t.name == tensor; });
  opened.cols = wanted->shape.back();
  opened.flat = opened.tensor.shape().size() == 1 && wanted->shape.size() == 2;
  return open_.emplace(std::pair{part, tensor}, std::move(opened)).first->second;
}

// Copies the part of the block that lies in rows [row, row + rows) of the parameter. `out` holds
// these rows with all `cols` columns.
void ImportedStates::copy(const ImportBlock& block, const Opened& from, std::int64_t row,
                          std::int64_t rows, std::int64_t cols, std::span<float> out) {
  const auto fetch = [&from](std::int64_t their_row, std::int64_t their_col, std::span<float> to) {
    if (from.flat) return from.tensor.read_row(0, their_row * from.cols + their_col, to);
    from.tensor.read_row(their_row, their_col, to);
  };
  const std::int64_t first = std::max(row, block.row);
  const std::int64_t last = std::min(row + rows, block.row + block.rows);
  if (!block.transposed) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto at = static_cast<std::size_t>((r - row) * cols + block.col);
      fetch(block.from_row + r - block.row, block.from_col,
            out.subspan(at, static_cast<std::size_t>(block.cols)));
    }
    return;
  }
  std::array<float, kTile> tile;
  for (std::int64_t r = first; r < last; r += kTile) {
    const std::int64_t wide = std::min(kTile, last - r);
    for (std::int64_t c = 0; c < block.cols; ++c) {
      fetch(block.from_row + c, block.from_col + r - block.row,
            {tile.data(), static_cast<std::size_t>(wide)});
      for (std::int64_t i = 0; i < wide; ++i) {
        nth(out, (r + i - row) * cols + block.col + c) = nth(tile, i);
      }
    }
  }
}

void ImportedStates::read(std::size_t param, StateKind kind, std::int64_t begin,
                          std::span<float> out, std::uint64_t seed) {
  const ImportParam& wanted = layout_.params[param];
  const std::int64_t cols = wanted.cols();
  const auto elems = static_cast<std::int64_t>(out.size());
  check(begin % cols == 0 && elems % cols == 0, "whole rows of a parameter: " + wanted.name);
  const std::int64_t row = begin / cols;
  const std::int64_t rows = elems / cols;
  std::int64_t covered = 0;
  for (const ImportBlock& block : wanted.blocks) covered += block.rows * block.cols;
  // Rows of the vocabulary that no block covers get initial weights.
  const std::int64_t absent = std::max(begin, covered);
  if (absent < begin + elems) {
    const auto drawn = out.subspan(static_cast<std::size_t>(absent - begin));
    std::fill(drawn.begin(), drawn.end(), 0.0F);
    if (kind == StateKind::kMaster) {
      fill_normal(drawn, seed, hash_name(wanted.name), absent, 0.0F,
                  static_cast<float>(wanted.init_std));
    }
  }
  for (const ImportBlock& block : wanted.blocks) {
    if (block.row >= row + rows || block.row + block.rows <= row) continue;
    copy(block, open(block.part, block.tensor, kind), row, rows, cols, out);
  }
}

std::string ImportedStates::commit(FileSystem& files, const std::string& dir, const RunState& run) {
  std::vector<StateRange> ranges;
  std::vector<std::size_t> params;  // index of the parameter of each range
  for (std::size_t i = 0; i < layout_.params.size(); ++i) {
    const ImportParam& param = layout_.params[i];
    for (const StateKind kind : kStateKinds) {
      if (kind != StateKind::kMaster && !moments_) continue;
      ranges.push_back(whole_range(param.name, kind, TensorDType::kF32, param.shape));
      params.push_back(i);
    }
  }
  const SaveTarget target = begin_save(files, dir, run.step);
  try {
    RankWriter writer(files, target, 0, ranges);
    std::vector<float> piece;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const ImportParam& param = layout_.params[params[i]];
      const std::int64_t step =
          std::max<std::int64_t>(1, kPieceElems / param.cols()) * param.cols();
      for (std::int64_t begin = 0; begin < ranges[i].elems(); begin += step) {
        piece.resize(static_cast<std::size_t>(std::min(step, ranges[i].elems() - begin)));
        read(params[i], ranges[i].kind, begin, piece, run.seed);
        writer.write(i, std::as_bytes(std::span(piece)));
        for (const auto& [name, opened] : open_) opened.tensor.let_go();
      }
      open_.clear();
    }
    const std::string record = writer.seal();
    sluice::commit(files, target, {&record, 1}, run);
  } catch (...) {
    abandon_save(files, target);
    throw;
  }
  return target.path();
}

}  // namespace sluice
