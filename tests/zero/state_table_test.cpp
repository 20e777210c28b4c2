// Which parameter arrays a rank holds where gathers round master weights.
#include "zero/state_table.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Groups: 0 gathered, 1 resident, 2 gathered and frozen.
ShardShape stage_3(DType dtype, bool rounds) {
  ShardShape shape;
  shape.stage = 3;
  shape.dp = 3;
  shape.dtype = dtype;
  shape.rounds_master = rounds;
  shape.groups = {{.elems = 288, .shard_elems = 96, .resident = false},
                  {.elems = 96, .shard_elems = 32, .resident = true},
                  {.elems = 192, .shard_elems = 64, .resident = false, .frozen = true}};
  return shape;
}

StateTable table_of(const ShardShape& shape) {
  HeldArrays held;
  held.gradient_streams = {1, 1, 1};
  return write_state_table(shape, held);
}

TEST(StateTable, GroupsThatAreRoundedHaveMasterWeightsAndNoShard) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const StateTable kept = table_of(stage_3(dtype, false));
    const StateTable rounded = table_of(stage_3(dtype, true));
    EXPECT_NE(kept.find(0, StateArray::kParameterShard, Tier::kDevice), nullptr);
    EXPECT_EQ(rounded.find(0, StateArray::kParameterShard, Tier::kDevice), nullptr);
    for (const StateKind state : {StateKind::kMaster, StateKind::kMoment1, StateKind::kMoment2}) {
      const StateRow* row = rounded.find(0, state, Tier::kDevice);
      ASSERT_NE(row, nullptr);
      EXPECT_EQ(row->elems, 96);
      EXPECT_EQ(row->dtype, DType::kFloat32);
    }
    EXPECT_NE(rounded.find(1, StateArray::kFullParameters, Tier::kDevice), nullptr);
    EXPECT_NE(rounded.find(2, StateArray::kParameterShard, Tier::kDevice), nullptr);
    EXPECT_EQ(rounded.find(2, StateKind::kMaster, Tier::kDevice), nullptr);
    EXPECT_EQ(kept.bytes(Tier::kDevice) - rounded.bytes(Tier::kDevice), 96 * 2);
    EXPECT_EQ(kept.rows.size(), rounded.rows.size() + 1);
  }
}

// Of groups that are gathered and trained, 16 bytes an owned element: 4 gradient, 4 master weight,
// 8 moments.
TEST(StateTable, ARoundedElementHas16Bytes) {
  ShardShape shape = stage_3(DType::kBFloat16, true);
  shape.groups.resize(1);
  EXPECT_EQ(table_of(shape).bytes(Tier::kDevice), 96 * 16);
  shape.rounds_master = false;
  EXPECT_EQ(table_of(shape).bytes(Tier::kDevice), 96 * 18);
}

// A model that is not trained has parameters and nothing to round.
TEST(StateTable, WhatIsFrozenKeepsItsShard) {
  ShardShape shape = stage_3(DType::kBFloat16, true);
  shape.frozen = true;
  EXPECT_NE(table_of(shape).find(0, StateArray::kParameterShard, Tier::kDevice), nullptr);
}

}  // namespace
}  // namespace sluice
