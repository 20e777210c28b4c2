// A checkpoint written again: the same states in other files.
#include "runtime/checkpoint/io/convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <random>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

// test_model's values are exact in bf16, so that they compare through any type.
TEST(Convert, AnyFilesOfAnyLayoutAndTypeHoldTheSame) {
  FileSystem& files = local_file_system();
  std::mt19937 random(5);
  for (const int parts : {1, 2, 3, 7, 64}) {
    for (const auto moments : {TensorDType::kF32, TensorDType::kBF16}) {
      TempDir dir;
      const Layout saved = make_layout(test_model(), {3, 2, TensorDType::kF32, true}, random);
      save(files, dir.path() + "/from", 12, saved);
      Checkpoint from = open_checkpoint(files, dir.path() + "/from");
      const std::string path =
          convert(files, from, dir.path() + "/to", {.files = parts, .moments = moments});
      const VerifyReport report = verify(files, path);
      EXPECT_TRUE(report.sound());
      EXPECT_EQ(report.files, parts + 1);  // and the tokenizer's
      expect_loads(files, path, 12, make_layout(test_model(), {2, 1, moments}, random));
      const Manifest written = open_checkpoint(files, path).manifest();
      EXPECT_EQ(written.run, from.manifest().run);
      for (const FileRecord& file : written.files) {
        for (const RangeRecord& record : file.ranges) {
          const bool master = record.range.kind == StateKind::kMaster;
          EXPECT_EQ(record.range.dtype, master ? TensorDType::kF32 : moments);
        }
      }
    }
  }
}

TEST(Convert, TypesStayWhereNoneIsGivenAndMomentsCanBeLeftOut) {
  FileSystem& files = local_file_system();
  std::mt19937 random(6);
  TempDir dir;
  save(files, dir.path(), 3, make_layout(small_model(), {2, 1, TensorDType::kBF16}, random));
  Checkpoint from = open_checkpoint(files, dir.path());
  const std::string same = convert(files, from, dir.path() + "/same", {});
  std::int64_t narrow = 0;
  const Checkpoint kept = open_checkpoint(files, same);
  for (const RangeRecord& record : kept.manifest().files.at(0).ranges) {
    if (record.range.dtype == TensorDType::kBF16) ++narrow;
  }
  EXPECT_EQ(narrow, 4);  // two moments of two parameters
  ConvertOptions weights;
  weights.weights_only = true;
  const Checkpoint bare =
      open_checkpoint(files, convert(files, from, dir.path() + "/bare", weights));
  EXPECT_TRUE(bare.has("wte.weight", StateKind::kMaster));
  EXPECT_FALSE(bare.has("wte.weight", StateKind::kMoment1));
  EXPECT_FALSE(bare.has("wte.weight", StateKind::kMoment2));
}

// As of a run of many ranks, on a machine with the usual limit.
TEST(Convert, OfMoreFilesThanAProcessMayHaveOpen) {
  FileSystem& files = local_file_system();
  std::mt19937 random(8);
  TempDir dir;
  save(files, dir.path() + "/from", 3, make_layout(test_model(), {1, 1}, random));
  Checkpoint from = open_checkpoint(files, dir.path() + "/from");
  Checkpoint many =
      open_checkpoint(files, convert(files, from, dir.path() + "/many", {.files = 150}));
  rlimit former{};
  ::getrlimit(RLIMIT_NOFILE, &former);
  const rlimit few{.rlim_cur = 100, .rlim_max = former.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const std::string one = convert(files, many, dir.path() + "/one", {});
  const VerifyReport report = verify(files, many.path());
  ::setrlimit(RLIMIT_NOFILE, &former);
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.files, 151);
  expect_loads(files, one, 3, make_layout(test_model(), {2, 1}, random));
}

TEST(Convert, WhatFailsLeavesNothing) {
  FileSystem& files = local_file_system();
  std::mt19937 random(7);
  TempDir dir;
  save(files, dir.path() + "/from", 3, make_layout(small_model(), {2, 1}, random));
  Checkpoint from = open_checkpoint(files, dir.path() + "/from");
  const std::string to = dir.path() + "/to";
  EXPECT_THROW((void)convert(files, from, to, {.files = 0}), Error);
  EXPECT_THROW((void)convert(files, from, to, {.files = 1 << 20}), Error);
  EXPECT_FALSE(std::filesystem::exists(to));
  arm_failpoints("checkpoint.write.enospc:error");
  EXPECT_THROW((void)convert(files, from, to, {.files = 2}), IoError);
  arm_failpoints("");
  EXPECT_TRUE(std::filesystem::is_empty(to));
  flip_bit(from.path() + "/" + rank_file_name(1), from.manifest().files.at(1).bytes - 1);
  EXPECT_THROW((void)convert(files, from, to, {}), CheckpointError);
  EXPECT_TRUE(std::filesystem::is_empty(to));
}

}  // namespace
}  // namespace sluice::testing
