#include "runtime/data/packing_plan.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace sluice {
namespace {

class Packer {
 public:
  Packer(std::span<const std::int64_t> lengths, const PackingOptions& options)
      : lengths_(lengths), options_(options) {}

  PackingPlan run() {
    const auto documents = static_cast<std::int64_t>(lengths_.size());
    for (std::int64_t first = 0; first < documents; first += options_.window) {
      pack_window(first, std::min(first + options_.window, documents));
    }
    for (PackedRow& row : plan_.rows) {
      std::sort(row.parts.begin(), row.parts.end(),
                [](const PackedPart& a, const PackedPart& b) { return a.document < b.document; });
    }
    plan_.counts.rows = static_cast<std::int64_t>(plan_.rows.size());
    return std::move(plan_);
  }

 private:
  // The length that a row gets: 0 if none.
  std::int64_t fitted(std::int64_t document) {
    const std::int64_t length = lengths_[static_cast<std::size_t>(document)];
    check(length >= 0, "plan_packing: a negative length");
    if (length <= options_.seq) return length;
    if (options_.truncation == Truncation::kError) {
      throw ConfigError("document " + std::to_string(document) + " has " + std::to_string(length) +
                        " tokens, more than model.seq (" + std::to_string(options_.seq) +
                        "); raise model.seq, or set truncate to drop or cut");
    }
    if (options_.truncation == Truncation::kDrop) {
      plan_.dropped.push_back(document);
      ++plan_.counts.dropped;
      plan_.counts.lost_tokens += length;
      return 0;
    }
    plan_.cut.push_back(document);
    ++plan_.counts.cut;
    plan_.counts.lost_tokens += length - options_.seq;
    return options_.seq;
  }

  void pack_window(std::int64_t first, std::int64_t last) {
    std::vector<PackedPart> parts;
    for (std::int64_t document = first; document < last; ++document) {
      const std::int64_t length = fitted(document);
      if (length > 0) parts.push_back({document, length});
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const PackedPart& a, const PackedPart& b) { return a.length > b.length; });
    for (const PackedPart& part : parts) place(part);
  }

  void place(const PackedPart& part) {
    auto found = open_.lower_bound({part.length, 0});
    std::size_t row = plan_.rows.size();
    if (found == open_.end()) {
      plan_.rows.emplace_back();
    } else {
      row = found->second;
      open_.erase(found);
    }
    PackedRow& target = plan_.rows[row];
    target.parts.push_back(part);
    target.used += part.length;
    if (target.used < options_.seq) open_.emplace(options_.seq - target.used, row);
    ++plan_.counts.documents;
    plan_.counts.tokens += part.length;
  }

  std::span<const std::int64_t> lengths_;
  const PackingOptions& options_;
  PackingPlan plan_;
  std::set<std::pair<std::int64_t, std::size_t>> open_;  // unused places, row
};

}  // namespace

void PackingCounts::add(const PackingCounts& other) {
  documents += other.documents;
  rows += other.rows;
  tokens += other.tokens;
  dropped += other.dropped;
  cut += other.cut;
  lost_tokens += other.lost_tokens;
}

double PackingCounts::used_share(std::int64_t seq) const {
  return rows == 0
             ? 1
             : static_cast<double>(tokens) / (static_cast<double>(rows) * static_cast<double>(seq));
}

PackingPlan plan_packing(std::span<const std::int64_t> lengths, const PackingOptions& options) {
  check(options.seq > 0 && options.window > 0, "plan_packing without places or documents");
  return Packer(lengths, options).run();
}

}  // namespace sluice
