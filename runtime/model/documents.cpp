#include "runtime/model/documents.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {
namespace {

// Adds documents in order; a group ends before the document that does not fit.
class GroupMaker {
 public:
  GroupMaker(const Documents& all, bool padded)
      : most_(Documents::most_documents(all.rows() * all.seq())),
        most_padded_(padded ? all.rows() * all.seq() : std::int64_t{0}) {}

  void add(std::int64_t count) {
    const DocumentGroup& now = groups_.back();
    const std::int64_t longest = std::max(now.longest, count);
    const bool full = now.documents == most_ ||
                      (most_padded_ > 0 && (now.documents + 1) * longest > most_padded_);
    if (full) {
      groups_.push_back({.first = now.first + now.tokens});
      ends_.push_back(0);
    }
    DocumentGroup& group = groups_.back();
    group.tokens += count;
    ++group.documents;
    group.longest = std::max(group.longest, count);
    ends_.push_back(static_cast<std::int32_t>(group.tokens));
  }

  [[nodiscard]] std::vector<DocumentGroup> take(const at::Device& device) {
    const at::Tensor host = empty_tensor({std::ssize(ends_)}, c10::ScalarType::Int);
    std::copy(ends_.begin(), ends_.end(), host_data<std::int32_t>(host));
    const at::Tensor all = host.to(device);
    std::int64_t at = 0;
    for (DocumentGroup& group : groups_) {
      group.bounds = all.narrow(0, at, group.documents + 1);
      at += group.documents + 1;
    }
    return std::move(groups_);
  }

 private:
  const std::int64_t most_;
  const std::int64_t most_padded_;  // 0: no limit
  std::vector<DocumentGroup> groups_ = std::vector<DocumentGroup>(1);
  std::vector<std::int32_t> ends_ = {0};  // of all groups, each from 0
};

}  // namespace

Documents::Documents(std::span<const std::vector<std::int32_t>> bounds, std::int64_t seq)
    : seq_(seq) {
  for (const std::vector<std::int32_t>& row : bounds) {
    const bool whole = row.size() >= 2 && row.front() == 0 && row.back() == seq;
    const auto repeated = std::adjacent_find(row.begin(), row.end(), std::greater_equal<>());
    if (!whole || repeated != row.end()) {
      throw Error("row " + std::to_string(rows_.size()) + " of a micro-batch: the ends of its " +
                  "documents do not increase from 0 to seq = " + std::to_string(seq));
    }
    std::vector<Span> spans;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      spans.push_back({row[i], row[i + 1] - row[i]});
    }
    rows_.push_back(std::move(spans));
  }
}

const std::vector<Documents::Span>& Documents::of_row(std::int64_t row) const {
  return nth(rows_, row);
}

void Documents::write_positions(std::int64_t* to) const {
  for (const std::vector<Span>& row : rows_) {
    for (const Span& span : row) {
      std::iota(to, to + span.count, std::int64_t{0});
      to += span.count;
    }
  }
}

const at::Tensor& Documents::positions(const at::Device& device) const {
  if (positions_.defined()) return positions_;
  const at::Tensor host = empty_tensor({rows() * seq_}, c10::ScalarType::Long);
  write_positions(host_data<std::int64_t>(host));
  return positions_ = host.to(device);
}

const std::vector<DocumentGroup>& Documents::groups(const at::Device& device, bool padded) const {
  if (groups_) return *groups_;
  GroupMaker maker(*this, padded);
  for (const std::vector<Span>& row : rows_) {
    for (const Span& span : row) maker.add(span.count);
  }
  return groups_.emplace(maker.take(device));
}

// Each document has an end, each group a 0 besides.
std::int64_t Documents::device_bytes(std::int64_t rows, std::int64_t seq) {
  constexpr std::int64_t kPosition = 8, kBound = 4;
  return rows * seq * (kPosition + 2 * kBound);
}

void check_documents(const UnitCall& call, std::int64_t rows, std::int64_t seq) {
  if (call.documents == nullptr) return;
  check(call.documents->rows() == rows && call.documents->seq() == seq,
        "a micro-batch's documents are of its rows");
}

}  // namespace sluice
