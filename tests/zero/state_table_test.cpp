// Which arrays a rank holds where gathers round master weights, and where master weights are split.
#include "zero/state_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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
  const StateTable kept = table_of(stage_3(DType::kFloat16, false));
  const StateTable rounded = table_of(stage_3(DType::kFloat16, true));
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

// Of groups that are gathered and trained, 16 bytes an owned element: 4 gradient, 8 moments, and 4
// master weight in fp16, or 2 parameter and 2 remainder in bf16.
TEST(StateTable, AnElementHas16Bytes) {
  ShardShape shape = stage_3(DType::kFloat16, true);
  shape.groups.resize(1);
  EXPECT_EQ(table_of(shape).bytes(Tier::kDevice), 96 * 16);
  shape.rounds_master = false;
  EXPECT_EQ(table_of(shape).bytes(Tier::kDevice), 96 * 18);
  shape.dtype = DType::kBFloat16;
  EXPECT_EQ(table_of(shape).bytes(Tier::kDevice), 96 * 16);
}

// A model that is not trained has parameters and nothing to round.
TEST(StateTable, WhatIsFrozenKeepsItsShard) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    ShardShape shape = stage_3(dtype, dtype == DType::kFloat16);
    shape.frozen = true;
    const StateTable table = table_of(shape);
    EXPECT_NE(table.find(0, StateArray::kParameterShard, Tier::kDevice), nullptr);
    EXPECT_EQ(table.find(0, StateArray::kRemainder, Tier::kDevice), nullptr);
  }
}

// In each stage, of the elements that the rank owns; frozen groups have none.
TEST(StateTable, RemaindersStandForMasterWeightsOnTheDevice) {
  for (int stage = 0; stage <= 3; ++stage) {
    ShardShape shape = stage_3(DType::kBFloat16, false);
    shape.stage = stage;
    const StateTable table = table_of(shape);
    for (const int g : {0, 1}) {
      const StateRow* row = table.find(g, StateArray::kRemainder, Tier::kDevice);
      ASSERT_NE(row, nullptr) << stage;
      EXPECT_EQ(row->elems, owned_elems(shape, g));
      EXPECT_EQ(row->bytes(), 2 * row->elems);
      EXPECT_EQ(row->tag, Tag::kMaster);
      EXPECT_EQ(table.find(g, StateKind::kMaster, Tier::kDevice), nullptr);
    }
    EXPECT_EQ(table.find(2, StateArray::kRemainder, Tier::kDevice), nullptr);
  }
}

// An image is one of states on NVMe: elsewhere the key does nothing.
TEST(StateTable, AnImageKeepsNothingOnTheDevice) {
  ShardShape shape = stage_3(DType::kBFloat16, false);
  shape.placement.image = true;
  EXPECT_NE(table_of(shape).find(0, StateArray::kRemainder, Tier::kDevice), nullptr);
}

// The part on the host has whole master weights: the host has no parameters.
TEST(StateTable, AShareOnTheDeviceHasItsRemaindersThere) {
  ShardShape shape = stage_3(DType::kBFloat16, false);
  shape.stage = 1;
  shape.groups[0] = {.elems = 3 * 4 * kChunkAlignElems, .shard_elems = 4 * kChunkAlignElems};
  shape.placement.optimizer = Tier::kHost;
  shape.placement.device_fraction = 0.5;
  const StateTable table = table_of(shape);
  EXPECT_EQ(table.find(0, StateArray::kRemainder, Tier::kDevice)->elems, 2 * kChunkAlignElems);
  EXPECT_EQ(table.find(0, StateKind::kMaster, Tier::kDevice), nullptr);
  EXPECT_EQ(table.find(0, StateKind::kMaster, Tier::kHost)->elems, 2 * kChunkAlignElems);
  EXPECT_EQ(table.find(0, StateArray::kRemainder, Tier::kHost), nullptr);
}

ShardShape parameters_on_host(DType dtype, Tier optimizer) {
  ShardShape shape = stage_3(dtype, false);
  shape.placement.optimizer = optimizer;
  shape.placement.parameters = Tier::kHost;
  return shape;
}

TEST(StateTable, RemaindersStandForMasterWeightsWhoseParametersAreOnTheHost) {
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    const StateTable table = table_of(parameters_on_host(DType::kBFloat16, tier));
    const StateRow* row = table.find(0, StateArray::kRemainder, tier);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->elems, 96);
    EXPECT_EQ(row->bytes(), 96 * 2);
    EXPECT_EQ(row->tag, Tag::kMaster);
    EXPECT_EQ(table.find(0, StateKind::kMaster, tier), nullptr);
    // The resident group's parameters are on the device; the frozen group has no master weights.
    EXPECT_EQ(table.find(1, StateArray::kRemainder, tier), nullptr);
    EXPECT_NE(table.find(1, StateKind::kMaster, tier), nullptr);
    EXPECT_EQ(table.find(2, StateArray::kRemainder, tier), nullptr);
  }
}

// An image holds whole master weights, and fp16 has another exponent.
TEST(StateTable, MasterWeightsStayWholeWhereTheirParametersCannotHoldTheirHighPart) {
  const auto is_split = [](const ShardShape& shape) {
    const StateTable table = table_of(shape);
    return table.find(0, StateArray::kRemainder, shape.placement.optimizer) != nullptr;
  };
  EXPECT_FALSE(is_split(parameters_on_host(DType::kFloat32, Tier::kHost)));
  EXPECT_FALSE(is_split(parameters_on_host(DType::kFloat16, Tier::kHost)));
  ShardShape shape = parameters_on_host(DType::kBFloat16, Tier::kNvme);
  EXPECT_TRUE(is_split(shape));
  shape.placement.image = true;
  EXPECT_FALSE(is_split(shape));
  shape.placement.image = false;
  for (const Tier tier : {Tier::kDevice, Tier::kNvme}) {
    shape.placement.parameters = tier;
    EXPECT_FALSE(is_split(shape));
  }
}

// New parameters on the host wait in a second place until their update is kept.
TEST(StateTable, SpeculatedChunksHaveTheirRemaindersAndParametersTwice) {
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    HeldArrays held;
    held.gradient_streams = {1, 1, 1};
    held.second_places = {{.group = 0, .begin = 32, .elems = 64}};
    const StateTable table = write_state_table(parameters_on_host(DType::kBFloat16, tier), held);
    EXPECT_EQ(table.find(0, StateArray::kRemainder, tier)->second_bytes(), 64 * 2);
    EXPECT_EQ(table.find(0, StateArray::kParameterShard, Tier::kHost)->second_bytes(), 64 * 2);
    EXPECT_EQ(table.find(0, StateKind::kMoment1, tier)->second_bytes(), 64 * 4);
  }
}

// States on the host have no image to record, and their second places are in memory.
TEST(StateTable, AnImageOfStatesOnTheHostHasNoRecords) {
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    ShardShape shape = parameters_on_host(DType::kFloat16, tier);
    shape.placement.image = true;
    HeldArrays held;
    held.gradient_streams = {1, 1, 1};
    held.second_places = {{.group = 0, .begin = 32, .elems = 64}};
    const StateTable table = write_state_table(shape, held);
    const bool records = std::ranges::any_of(
        table.rows, [](const StateRow& row) { return row.array == StateArray::kImageRecord; });
    EXPECT_EQ(records, tier == Tier::kNvme);
  }
}

}  // namespace
}  // namespace sluice
