#include "runtime/checkpoint/import/import_tensor.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"

namespace sluice {

std::int64_t TensorPiece::rows() const {
  const std::vector<std::int64_t>& shape = file->tensor(*value).shape;
  return shape.size() < 2 ? 1 : shape[shape.size() - 2];
}

std::int64_t TensorPiece::cols() const {
  const std::vector<std::int64_t>& shape = file->tensor(*value).shape;
  return shape.empty() ? 1 : shape.back();
}

OpenTensor::OpenTensor(std::string name, std::shared_ptr<TorchFile> file, const PickleValue& value)
    : name_(std::move(name)), shape_(file->tensor(value).shape) {
  pieces_.push_back({std::move(file), &value, 0, 0});
}

OpenTensor::OpenTensor(std::string name, std::vector<std::int64_t> shape,
                       std::vector<TensorPiece> pieces)
    : name_(std::move(name)), shape_(std::move(shape)), pieces_(std::move(pieces)) {
  check(!pieces_.empty() && !shape_.empty() && shape_.size() <= 2, "pieces of a matrix: " + name_);
  const std::int64_t rows = shape_.size() == 2 ? shape_[0] : 1;
  constexpr std::size_t kMostPieces = 4096;  // every pair of pieces is compared
  if (pieces_.size() > kMostPieces) {
    throw error(format_text("is in {} pieces, over the limit of {}", pieces_.size(), kMostPieces));
  }
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const TensorPiece& piece = pieces_[i];
    bool fits = piece.row >= 0 && piece.col >= 0 && piece.rows() <= rows - piece.row &&
                piece.cols() <= shape_.back() - piece.col;
    for (std::size_t j = 0; j < i && fits; ++j) {
      const TensorPiece& other = pieces_[j];
      const bool apart =
          piece.row >= other.row + other.rows() || other.row >= piece.row + piece.rows() ||
          piece.col >= other.col + other.cols() || other.col >= piece.col + piece.cols();
      fits = apart;
    }
    if (!fits) {
      throw CheckpointError(
          "a piece of it overlaps another or reaches beyond its shape " + shape_text(shape_),
          piece.file->path(), name_, piece.value->at);
    }
    covered += piece.rows() * piece.cols();
  }
  if (covered != element_count(shape_)) {
    throw error(format_text("its pieces hold {} of the {} elements of its shape {}", covered,
                            element_count(shape_), shape_text(shape_)));
  }
}

OpenTensor::OpenTensor(std::string name, std::vector<std::int64_t> shape,
                       const std::vector<TensorRun>& runs)
    : name_(std::move(name)), shape_(std::move(shape)) {
  std::int64_t at = 0;
  for (const TensorRun& run : runs) {
    const std::vector<std::int64_t>& stored = run.file->tensor(*run.value).shape;
    check(run.elems > 0 && run.from >= 0 && stored.size() == 1 && run.elems <= stored[0] - run.from,
          "elements of a vector: " + name_);
    runs_.push_back({run, at});
    at += run.elems;
  }
  check(!runs_.empty() && at == element_count(shape_), "runs of a tensor: " + name_);
}

CheckpointError OpenTensor::error(const std::string& what) const {
  if (!runs_.empty()) return {what, runs_[0].run.file->path(), name_, runs_[0].run.value->at};
  return {what, pieces_[0].file->path(), name_, pieces_[0].value->at};
}

void OpenTensor::check_dtype() const {
  for (const PlacedRun& placed : runs_) (void)placed.run.file->dtype(*placed.run.value, name_);
  for (const TensorPiece& piece : pieces_) (void)piece.file->dtype(*piece.value, name_);
}

void OpenTensor::check_storage() const {
  for (const PlacedRun& placed : runs_) placed.run.file->check_storage(*placed.run.value, name_);
  for (const TensorPiece& piece : pieces_) piece.file->check_storage(*piece.value, name_);
}

void OpenTensor::read_runs(std::int64_t begin, std::span<float> out) const {
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  auto placed = std::upper_bound(
      runs_.begin(), runs_.end(), begin,
      [](std::int64_t element, const PlacedRun& after) { return element < after.at; });
  for (--placed; placed != runs_.end() && placed->at < end; ++placed) {
    const TensorRun& run = placed->run;
    const std::int64_t first = std::max(begin, placed->at);
    const std::int64_t last = std::min(end, placed->at + run.elems);
    run.file->read_row(*run.value, 0, run.from + first - placed->at,
                       out.subspan(static_cast<std::size_t>(first - begin),
                                   static_cast<std::size_t>(last - first)));
  }
}

void OpenTensor::read_row(std::int64_t row, std::int64_t col, std::span<float> out) const {
  if (!runs_.empty()) {
    const std::int64_t cols = shape_.empty() ? 1 : shape_.back();
    const std::int64_t begin = row * cols + col;
    check(begin >= 0 && static_cast<std::int64_t>(out.size()) <= element_count(shape_) - begin,
          "elements within their tensor");
    return read_runs(begin, out);
  }
  const std::int64_t end = col + static_cast<std::int64_t>(out.size());
  for (const TensorPiece& piece : pieces_) {
    if (row < piece.row || row >= piece.row + piece.rows()) continue;
    const std::int64_t first = std::max(col, piece.col);
    const std::int64_t last = std::min(end, piece.col + piece.cols());
    if (first >= last) continue;
    piece.file->read_row(
        *piece.value, row - piece.row, first - piece.col,
        out.subspan(static_cast<std::size_t>(first - col), static_cast<std::size_t>(last - first)));
  }
}

void OpenTensor::let_go() const {
  for (const PlacedRun& placed : runs_) {
    placed.run.file->let_go(*placed.run.value, placed.run.from, placed.run.elems);
  }
  for (const TensorPiece& piece : pieces_) piece.file->let_go(*piece.value);
}

}  // namespace sluice
