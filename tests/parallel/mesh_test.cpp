#include "parallel/mesh.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.hpp"

namespace sluice {
namespace {

std::string refusal(const ParallelOptions& options, int world) {
  try {
    const Mesh mesh(options, world);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

template <typename Body>
void for_all_meshes(const Body& body) {
  for (int tp = 1; tp <= 4; ++tp) {
    for (int dp = 1; dp <= 4; ++dp) {
      for (int pp = 1; pp <= 4; ++pp) {
        body(tp, dp, pp, Mesh({.tensor = tp, .pipeline = pp, .data = dp}, tp * dp * pp));
      }
    }
  }
}

TEST(Mesh, RanksAndCoordinatesAreInverseWithTensorFastest) {
  for_all_meshes([](int tp_size, int dp_size, int pp_size, const Mesh& mesh) {
    int rank = 0;
    for (int pp = 0; pp < pp_size; ++pp) {
      for (int dp = 0; dp < dp_size; ++dp) {
        for (int tp = 0; tp < tp_size; ++tp, ++rank) {
          const MeshCoordinates at{tp, dp, pp};
          EXPECT_EQ(mesh.coordinates(rank), at);
          EXPECT_EQ(mesh.world_rank(at), rank);
        }
      }
    }
    EXPECT_EQ(mesh.world(), rank);
  });
}

TEST(Mesh, GroupsOfAnAxisPartitionTheWorld) {
  for_all_meshes([](int, int, int, const Mesh& mesh) {
    for (const MeshAxis axis : kMeshAxes) {
      std::map<std::string, std::vector<int>> by_name;
      for (int rank = 0; rank < mesh.world(); ++rank) {
        const std::vector<int> group = mesh.group(axis, rank);
        ASSERT_EQ(static_cast<int>(group.size()), mesh.size(axis));
        const int place = mesh.rank_in_group(axis, rank);
        EXPECT_EQ(group[static_cast<std::size_t>(place)], rank);
        const auto [entry, fresh] = by_name.emplace(mesh.group_name(axis, rank), group);
        EXPECT_EQ(entry->second, group) << "one name, two groups: " << entry->first;
      }
      std::set<int> seen;
      for (const auto& [name, group] : by_name) seen.insert(group.begin(), group.end());
      EXPECT_EQ(static_cast<int>(seen.size()), mesh.world());
      EXPECT_EQ(static_cast<int>(by_name.size()) * mesh.size(axis), mesh.world());
    }
  });
}

TEST(Mesh, AGroupDiffersInItsAxisAlone) {
  const Mesh mesh({.tensor = 2, .pipeline = 2, .data = 3}, 12);
  EXPECT_EQ(mesh.group(MeshAxis::kTensor, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(mesh.group(MeshAxis::kData, 3), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(mesh.group(MeshAxis::kPipeline, 3), (std::vector<int>{3, 9}));
  EXPECT_EQ(mesh.group_name(MeshAxis::kData, 3), "dp.tp1.pp0");
}

TEST(Mesh, DataIsWhatIsLeft) {
  EXPECT_EQ(Mesh({.tensor = 2, .pipeline = 3}, 12).size(MeshAxis::kData), 2);
  EXPECT_EQ(Mesh({}, 5).size(MeshAxis::kData), 5);
  EXPECT_EQ(Mesh({}, 5).group_name(MeshAxis::kData, 4), "dp");
}

TEST(Mesh, RefusesWithTheEquation) {
  EXPECT_EQ(
      refusal({.tensor = 2, .pipeline = 2}, 6),
      "world (6) is not a multiple of parallel tensor (2) x pipeline (2) = 4: change the number "
      "of ranks or the parallel section");
  EXPECT_EQ(
      refusal({.tensor = 2, .data = 2}, 6),
      "world (6) must equal parallel data (2) x tensor (2) x pipeline (1): change the number of "
      "ranks, or set parallel.data to auto");
  EXPECT_EQ(refusal({.tensor = 0}, 4), "parallel.tensor = 0: must be at least 1");
  EXPECT_EQ(refusal({.pipeline = -1}, 4), "parallel.pipeline = -1: must be at least 1");
  EXPECT_EQ(refusal({.data = -2}, 4), "parallel.data = -2: must be at least 1");
  EXPECT_EQ(refusal({}, 0), "world (number of ranks) = 0: must be at least 1");
  EXPECT_NE(refusal({.tensor = 1 << 30, .pipeline = 1 << 30, .data = 1 << 30}, 8), "");
}

}  // namespace
}  // namespace sluice
