#include "kernels/cpu/slice_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/check_ids.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/narrow_row.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

void check_slice(const EntropySlice& s) {
  check(s.rows >= 0 && s.words >= 1 && s.first >= 0 && s.first + s.words <= s.vocab,
        "slice_entropy: a slice lies within the vocabulary");
  check(s.rows == 0 || (s.logits != nullptr && s.targets != nullptr),
        "slice_entropy: a null buffer");
  check_targets(s.targets, s.rows, s.vocab);
}

bool has_target(const EntropySlice& s, std::int64_t row) {
  return s.targets[row] >= s.first && s.targets[row] < s.first + s.words;
}

RowPart part_of_row(const KernelTable& table, const EntropySlice& s, std::int64_t row,
                    bool exponentials) {
  float* x = s.logits + row * s.words;
  RowPart part;
  if (has_target(s, row)) part.target = static_cast<double>(x[s.targets[row] - s.first]);
  const float max = table.row_max(x, s.words);
  part.max = static_cast<double>(max);
  if (part.max == kNothing) {  // the whole slice is masked; other slices have unmasked words
    if (exponentials) std::fill(x, x + s.words, 0.0F);
    return part;
  }
  part.sum = table.row_exp_sum(exponentials ? x : nullptr, x, s.words, max);
  return part;
}

// One row, combined over all slices.
struct WholeRow {
  double max = kNothing;
  double sum = 0;
  double target = 0;
};

WholeRow whole_row(const EntropySlice& s, std::span<const RowPart> parts, std::int64_t row) {
  const auto rows = static_cast<std::size_t>(s.rows);
  WholeRow whole;
  for (auto at = static_cast<std::size_t>(row); at < parts.size(); at += rows) {
    // Negated, so that a NaN is taken over too.
    if (!(parts[at].max <= whole.max)) whole.max = parts[at].max;
  }
  for (auto at = static_cast<std::size_t>(row); at < parts.size(); at += rows) {
    if (parts[at].max != kNothing) whole.sum += parts[at].sum * std::exp(parts[at].max - whole.max);
    whole.target += parts[at].target;
  }
  return whole;
}

void gradient_of_row(const KernelTable& table, const EntropySlice& s,
                     std::span<const RowPart> parts, const SliceGradient& gradient,
                     std::int64_t row) {
  float* x = s.logits + row * s.words;
  if (s.targets[row] == kIgnoreTarget) return std::fill(x, x + s.words, 0.0F);
  const WholeRow whole = whole_row(s, parts, row);
  const RowPart& own = nth(parts, gradient.rank * s.rows + row);
  const double scale = double{gradient.scale};
  const double factor =
      own.max == kNothing && whole.sum > 0 ? 0 : std::exp(own.max - whole.max) / whole.sum;
  float* at_target = has_target(s, row) ? x + (s.targets[row] - s.first) : nullptr;
  // p - 1 is computed in double: near p = 1 the fp32 difference has no correct digits.
  const double of_target =
      at_target == nullptr ? 0 : (static_cast<double>(*at_target) * factor - 1.0) * scale;
  table.scale(x, s.words, static_cast<float>(scale * factor));
  if (at_target != nullptr) *at_target = static_cast<float>(of_target);
  if (gradient.dtype != DType::kFloat32) narrow_row(table, gradient.dtype, x, s.words);
}

template <class Row>
void for_rows(const EntropySlice& s, Row f) {
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elements(4) / s.words);
  parallel_for(s.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

void slice_softmax(const EntropySlice& slice, RowPart* parts, bool exponentials) {
  check_slice(slice);
  const KernelTable& table = kernels();
  for_rows(slice,
           [&](std::int64_t row) { parts[row] = part_of_row(table, slice, row, exponentials); });
}

double slice_loss(const EntropySlice& slice, std::span<const RowPart> parts) {
  double total = 0;
  for (std::int64_t row = 0; row < slice.rows; ++row) {
    if (slice.targets[row] == kIgnoreTarget) continue;
    const WholeRow whole = whole_row(slice, parts, row);
    total += std::log(whole.sum) + (whole.max - whole.target);
  }
  return total;
}

void slice_gradient(const EntropySlice& slice, std::span<const RowPart> parts,
                    const SliceGradient& gradient) {
  const KernelTable& table = kernels();
  for_rows(slice, [&](std::int64_t row) { gradient_of_row(table, slice, parts, gradient, row); });
}

}  // namespace sluice
