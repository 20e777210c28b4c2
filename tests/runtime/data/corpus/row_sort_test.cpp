#include "runtime/data/corpus/dedupe/row_sort.hpp"

#include <algorithm>
#include <set>

#include "runtime/data/corpus/dedupe/clusters.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

std::vector<Row> sorted_rows(const std::vector<Row>& rows, std::int64_t memory_bytes,
                             const std::string& folder) {
  RowSorter sorter(folder, memory_bytes);
  for (const Row& row : rows) sorter.add(row);
  std::vector<Row> result;
  for (Row row; sorter.next(row);) result.push_back(row);
  return result;
}

TEST(RowSort, ManyRunsAreOneOrderWithoutRepeats) {
  const TempFolder folder;
  std::mt19937_64 random(7);
  std::vector<Row> rows;
  for (int i = 0; i < 3000; ++i) rows.push_back({random() % 40, random() % 5, random() % 20});
  std::vector<Row> expected = rows;
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  // 3000 rows in runs of 10: 300 runs, more than one merge takes.
  for (const std::int64_t memory_bytes : {240, 2400, 1 << 20}) {
    EXPECT_EQ(sorted_rows(rows, memory_bytes, folder.path()), expected) << memory_bytes;
  }
  EXPECT_TRUE(sorted_rows({}, 240, folder.path()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // no file is left
}

TEST(RowSort, RowsBetweenAreFoundInTheFile) {
  const TempFolder folder;
  std::string bytes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Row row{3 * i, i, 0};
    bytes.append(reinterpret_cast<const char*>(&row), sizeof row);
  }
  write_file(folder / "rows", bytes);
  EXPECT_EQ(rows_between(folder / "rows", 4, 10), (std::vector<Row>{{6, 2, 0}, {9, 3, 0}}));
  EXPECT_EQ(rows_between(folder / "rows", 0, 1).size(), 1U);
  EXPECT_EQ(rows_between(folder / "rows", 297, 1000).size(), 1U);
  EXPECT_TRUE(rows_between(folder / "rows", 298, 1000).empty());
  write_file(folder / "cut", bytes.substr(0, 30));
  RowReader cut(folder / "cut");
  Row row;
  EXPECT_EQ(message_of([&] {
              while (cut.next(row)) {
              }
            }),
            (folder / "cut") +
                " is damaged: it ends inside a row; remove the output folder and start again");
}

// The oracle: the least document of each component by repeated passes over the edges.
std::map<std::uint64_t, std::uint64_t> least_of_components(
    const std::vector<std::pair<std::uint64_t, std::uint64_t>>& edges) {
  std::map<std::uint64_t, std::uint64_t> least;
  for (const auto& [x, y] : edges) least[x] = x, least[y] = y;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [x, y] : edges) {
      const std::uint64_t both = std::min(least[x], least[y]);
      changed = changed || least[x] != both || least[y] != both;
      least[x] = least[y] = both;
    }
  }
  std::erase_if(least, [](const auto& entry) { return entry.first == entry.second; });
  return least;
}

TEST(Components, EachDocumentIsJoinedWithTheLeastOfItsComponent) {
  const TempFolder folder;
  std::mt19937_64 random(11);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> edges;
    const std::uint64_t documents = 2 + random() % 60;
    for (std::uint64_t i = random() % 80; i-- > 0;) {
      const std::uint64_t x = random() % documents, y = random() % documents;
      if (x != y) edges.emplace_back(x, y);
    }
    // A path in a bad order is the hardest component.
    for (std::uint64_t i = 0; i < 40 && round % 3 == 0; ++i) {
      edges.emplace_back(100 + i * 37 % 41, 100 + (i + 1) * 37 % 41);
    }
    std::map<std::uint64_t, std::uint64_t> found;
    std::uint64_t last = 0;
    connect_components(
        [&](const auto& edge) {
          for (const auto& [x, y] : edges) edge(x, y);
        },
        folder.path(), 2000,
        [&](std::uint64_t document, std::uint64_t least) {
          EXPECT_TRUE(found.empty() || document > last);
          last = document;
          found[document] = least;
        });
    EXPECT_EQ(found, least_of_components(edges)) << round;
  }
}

}  // namespace
}  // namespace sluice::testing
