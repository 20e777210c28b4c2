#include "runtime/data/corpus/dedupe/clusters.hpp"

#include <algorithm>
#include <memory>

namespace sluice {
namespace {

using Sorter = std::unique_ptr<RowSorter>;

// Rows (document, neighbour, 0) in order, as groups of one document. Neighbours are read twice: the
// least one comes first, since rows are sorted.
class Groups {
 public:
  explicit Groups(RowSorter& rows) : rows_(rows) { more_ = rows_.next(row_); }
  [[nodiscard]] bool more() const { return more_; }
  [[nodiscard]] std::uint64_t document() const { return row_.a; }
  // Calls neighbour(y) for the neighbours of the current document in order.
  template <class Call>
  void each_neighbour(const Call& neighbour) {
    const std::uint64_t document = row_.a;
    while (more_ && row_.a == document) {
      neighbour(row_.b);
      more_ = rows_.next(row_);
    }
  }

 private:
  RowSorter& rows_;
  Row row_;
  bool more_ = false;
};

// Each document's neighbours above it are joined with the least of the group. True: an edge
// changed.
bool large_star(RowSorter& both_ways, RowSorter& downwards) {
  bool changed = false;
  for (Groups groups(both_ways); groups.more();) {
    const std::uint64_t document = groups.document();
    std::uint64_t least = document;
    bool first = true;
    groups.each_neighbour([&](std::uint64_t neighbour) {
      if (first) least = std::min(document, neighbour);
      first = false;
      if (neighbour <= document) return;
      downwards.add({neighbour, least, 0});
      changed = changed || least != document;
    });
  }
  return changed;
}

// Edges go down. Each document's neighbours below are joined with the least of them.
bool small_star(RowSorter& downwards, RowSorter& both_ways) {
  bool changed = false;
  const auto join = [&](std::uint64_t x, std::uint64_t y) {
    both_ways.add({x, y, 0});
    both_ways.add({y, x, 0});
  };
  for (Groups groups(downwards); groups.more();) {
    const std::uint64_t document = groups.document();
    std::uint64_t least = 0;
    bool first = true;
    groups.each_neighbour([&](std::uint64_t neighbour) {
      if (first) {
        least = neighbour;
        first = false;
        join(document, least);
        return;
      }
      changed = true;
      join(neighbour, least);
    });
  }
  return changed;
}

}  // namespace

void connect_components(const EdgeSource& edges, const std::string& folder,
                        std::int64_t memory_bytes, const MemberSink& member) {
  const auto make = [&] { return std::make_unique<RowSorter>(folder, memory_bytes / 2); };
  Sorter both_ways = make();
  edges([&](std::uint64_t x, std::uint64_t y) {
    both_ways->add({x, y, 0});
    both_ways->add({y, x, 0});
  });
  for (;;) {
    const Sorter downwards = make();
    const bool large_changed = large_star(*both_ways, *downwards);
    both_ways = make();
    const bool small_changed = small_star(*downwards, *both_ways);
    if (large_changed || small_changed) continue;
    // Each edge is there in both directions.
    for (Row row; both_ways->next(row);) {
      if (row.a > row.b) member(row.a, row.b);
    }
    return;
  }
}

}  // namespace sluice
